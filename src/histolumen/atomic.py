"""Writing that either happens whole or not at all."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from histolumen.errors import DiskError


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; on success flush it to disk and rename, on failure leave `path` alone."""
    temporary = _sibling(path, f"{uuid.uuid4().hex[:12]}.tmp")  # machines that share a disk may share process numbers
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
        try:
            yield temporary
            _flush(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """As `new_file`, for a folder whose files belong together. Readers call `settle` first."""
    temporary, ready = _sibling(path, f"{os.getpid()}.tmp"), _sibling(path, "new")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        settle(path)
        for left_by_a_kill in path.parent.glob(f".{path.name}.*.tmp"):
            shutil.rmtree(left_by_a_kill, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.iterdir():
                _flush(file)
            temporary.rename(ready)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        settle(path)


def settle(path: Path) -> None:
    """Put a complete new folder in the place of the old one; also finishes what a kill left half-way.

    A writer and readers may do this at the same time: whoever finds a step already taken goes on to the next.
    """
    ready, old = _sibling(path, "new"), _sibling(path, "old")
    if ready.exists():  # complete by construction: it got this name after its last flush
        with suppress(FileNotFoundError):
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                path.rename(old)
            ready.rename(path)
    if old.exists() and not path.exists() and not ready.exists():
        with suppress(FileNotFoundError):
            old.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _sibling(path: Path, ending: str) -> Path:
    whole = path.absolute()  # `.` has no name of its own
    return whole.with_name(f".{whole.name}.{ending}")


def _flush(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the system says about a failed write into a sentence about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            advice = "the disk is full; free some space or write elsewhere"
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            advice = "no permission to write there; choose another folder"
        elif error.errno == errno.ENAMETOOLONG:
            advice = "the name is too long for this disk; choose a shorter one"
        elif error.errno == errno.EISDIR:
            advice = "a folder stands where a file is needed; choose another name"
        elif error.errno in {errno.ENOTDIR, errno.EEXIST}:
            advice = "a file stands where a folder is needed; choose another name"
        else:
            raise
        raise DiskError(f"{path}: {advice}. Nothing that was there has been changed.") from error
