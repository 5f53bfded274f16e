"""A temporary folder that only this user can read, and that does not outlive the viewer by more than a crash."""

import os
import shutil
import stat
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from histolumen.errors import DiskError, LockedError
from histolumen.locking import exclusive

_PREFIX = "histolumen-view-"
_NEW_SECONDS = 60  # a folder without lock may belong to a viewer that starts at this moment


class PrivateFolder:
    """Created with mode 0700 and held by a lock, which the system releases when the process dies.

    Whoever opens such a folder first deletes those whose viewer has crashed or was killed.
    """

    def __init__(self) -> None:
        _sweep()
        self._held = ExitStack()
        while True:
            self._home = Path(tempfile.mkdtemp(prefix=_PREFIX))
            try:
                self._held.enter_context(exclusive(self._home))
                break
            except LockedError:  # another viewer took the new folder for an abandoned one, and deletes it
                continue
        self.path = self._home / "files"
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()
        shutil.rmtree(self._home, ignore_errors=True)


def _sweep() -> None:
    """Delete the folders of viewers of this user that no longer run."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, LockedError, DiskError):  # in use, or gone meanwhile
            status = home.lstat()
            if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                continue
            if not (home / ".lock").exists() and time.time() - status.st_mtime < _NEW_SECONDS:
                continue
            with exclusive(home):
                shutil.rmtree(home, ignore_errors=True)
