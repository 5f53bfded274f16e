"""One writer per folder: a lock that says who holds it, and that dies with its process."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from histolumen.atomic import os_errors_as_disk_error
from histolumen.errors import LockedError

_POLL_SECONDS = 0.5


@contextmanager
def exclusive(folder: Path, name: str = ".lock", wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold `folder` for this process; raise a `LockedError` that names the holder if another process has it.

    The operating system releases the lock of a process that dies, so no lock is ever stale. The file that names the
    holder is information only. Lock and empty new folders are removed at the end.

    Args:
        folder: the folder to write to; created if needed.
        name: of the lock file, for several locks in one folder.
        wait: wait for the holder instead of raising; called once with the message.
    """
    created = _missing_folders(folder)
    lock, holder = FileLock(folder / name, timeout=0), folder / f"{name}.json"
    told = False
    while True:
        with os_errors_as_disk_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
                break
            except FileNotFoundError:  # another process has removed the empty folder
                if folder.exists():
                    raise
                continue
            except Timeout as timeout:
                message = f"{folder}: another process is writing here ({_describe(holder)})"
                if wait is None:
                    raise LockedError(f"{message}; wait for it, or choose another folder") from timeout
                if not told:
                    wait(f"waiting: {message}")
                told = True
        time.sleep(_POLL_SECONDS)
    try:
        with os_errors_as_disk_error(folder):
            holder.write_text(json.dumps(_self()), encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            holder.unlink(missing_ok=True)
            # before the release: a process that has opened the file meanwhile finds it without a name, and retries
            (folder / name).unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # not empty, or gone
            for path in created:
                path.rmdir()


def _self() -> dict[str, str | int]:
    started = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    return {"host": socket.gethostname(), "process": os.getpid(), "since": started}


def _describe(holder: Path) -> str:
    try:
        content = json.loads(holder.read_text(encoding="utf-8"))
        return f"{content['host']}, process {content['process']}, since {content['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # not written yet, or removed at this moment
        return "which has just started or is about to end"


def _missing_folders(folder: Path) -> list[Path]:
    """`folder` and those of its parents that do not exist, deepest first."""
    with os_errors_as_disk_error(folder):
        return [path for path in (folder, *folder.parents) if not path.exists()]
