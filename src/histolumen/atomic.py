"""Atomic writes: a file or folder is written completely or not at all."""

import errno
import glob
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from histolumen.errors import DiskError

_MAX_NAME_BYTES = 200  # of the part of a temporary name that repeats the final one; disks allow 255 in all
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")  # names given by `new_file`
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space or write elsewhere",
    errno.EDQUOT: "the disk is full; free some space or write elsewhere",
    errno.EACCES: "no permission to write there; choose another folder",
    errno.EPERM: "no permission to write there; choose another folder",
    errno.EROFS: "no permission to write there; choose another folder",
    errno.ENAMETOOLONG: "the name is too long for this disk; choose a shorter one",
    errno.EISDIR: "a folder stands where a file is needed; choose another name",
    errno.ENOTDIR: "a file stands where a folder is needed; choose another name",
    errno.EEXIST: "a file stands where a folder is needed; choose another name",
}
_WHOLE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_REFUSALS = frozenset(
    {
        *(errno.ENOENT, errno.EINVAL, errno.EIO, errno.ENODEV, errno.ENXIO, errno.EFBIG, errno.ELOOP, errno.ESTALE),
        *(errno.EBUSY, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTEMPTY, errno.EMFILE, errno.ENFILE),
        *(errno.ETXTBSY, errno.EBADF),
    }
)
"""What other file systems answer: pseudo ones such as /proc, network drives that are gone, limits of a process."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success it is flushed and renamed to `path`, on failure `path` is unchanged."""
    temporary = _sibling(path, f"{uuid.uuid4().hex[:12]}.tmp")  # process ids may repeat on a shared disk
    with os_errors_as_disk_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
        if path.exists() and not path.is_file():
            raise DiskError(
                f"{path}: is not a regular file (a device or a pipe), and is left alone; choose another name"
            )
        try:
            yield temporary
            _flush(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path, *, below: bool = False) -> None:
    """Remove the temporary files of killed processes; only for the process that holds the lock of `folder`.

    Args:
        folder: the folder to tidy.
        below: whether to tidy its subfolders too.
    """
    for path in folder.rglob(".*.tmp") if below else folder.glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            with suppress(OSError):  # of no importance: the names are hidden, and no reader looks at them
                path.unlink()


def refuse_replacing(path: Path, overwrite: bool) -> None:
    """Raise an error if a file exists that the user has not agreed to replace."""
    if path.exists() and not overwrite:
        raise DiskError(f"{path}: exists; add --overwrite to replace it, or choose another name")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Like `new_file`, for a folder whose files belong together. Readers call `finish_swap` first."""
    temporary, ready = _sibling(path, f"{os.getpid()}.tmp"), _sibling(path, "new")
    with os_errors_as_disk_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        finish_swap(path)
        for abandoned in path.parent.glob(glob.escape(_sibling(path, "").name) + "*.tmp"):
            shutil.rmtree(abandoned, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.iterdir():
                _flush(file)
            temporary.rename(ready)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        finish_swap(path)


def finish_swap(path: Path) -> None:
    """Replace the old folder by the complete new one, or complete a replacement that a killed process left unfinished.

    A writer and readers may call this at the same time: each skips the steps that another has already taken.
    """
    ready, old = _sibling(path, "new"), _sibling(path, "old")
    if ready.exists():  # complete: it gets this name after the last flush
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
    absolute = path.absolute()  # `.` has no name of its own
    return absolute.with_name(f".{short_name(absolute.name, _MAX_NAME_BYTES)}.{ending}")


def short_name(name: str, max_bytes: int) -> str:
    """A file name of at most `max_bytes`: the start of `name` and a hash, so that different names stay different."""
    encoded = os.fsencode(name)
    if len(encoded) <= max_bytes:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:12]
    return encoded[: max_bytes - len(digest) - 1].decode("utf-8", "ignore") + "-" + digest


def _flush(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


@contextmanager
def os_errors_as_disk_error(path: Path) -> Iterator[None]:
    """Raise a failed write as a `DiskError` that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _ADVICE:
            advice = _ADVICE[error.errno]
        elif error.errno in _REFUSALS:
            advice = f"cannot be written ({error.strerror}); choose a folder on an ordinary disk"
        else:
            raise
        explained = DiskError(f"{path}: {advice}. Existing files are unchanged.")
        explained.whole_disk = error.errno in _WHOLE_DISK  # an attribute, not the cause, survives pickling
        raise explained from error
