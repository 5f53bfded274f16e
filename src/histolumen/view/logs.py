"""What the viewer writes to its log: that something happened and where in the code, never which file it was about.

File names and labels of histology images often identify patients, and logs are kept, copied and sent around.
"""

import logging
import sys
import time
import traceback
from pathlib import PurePath

_REPEAT_SECONDS = 60.0
_OWN_WORDS = ("histolumen.", "uvicorn")  # loggers whose messages are constant texts of this software or the server


class PrivateFormatter(logging.Formatter):
    """Errors as type and place in the code; messages of other software, which may name files, as their place only."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and one per error that is reported."""
        place = f"{PurePath(record.pathname).name}:{record.lineno}"
        known = record.name.startswith(_OWN_WORDS)
        text = str(record.msg).strip() if known else f"{record.name} at {place}"  # without the arguments
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower()}: {text}"
        error = record.exc_info[1] if record.exc_info else None
        return line if error is None else f"{line} ({describe_error(error)})"


class OncePerMinute(logging.Filter):
    """Drops lines that repeat: a client that sends garbage must not fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; lines are told apart by where they come from, which is a finite set."""
        error = describe_error(record.exc_info[1]) if record.exc_info and record.exc_info[1] else ""
        key, now = (record.pathname, record.lineno, error), time.monotonic()
        if now - self._last.get(key, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return False
        self._last[key] = now
        return True


def describe_error(error: BaseException) -> str:
    """Type of an error, and file and line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def configure_logs(*, verbose: bool) -> None:
    """Write the log of this process to stderr.

    Args:
        verbose: everything, with requests, file names and full errors; for finding a problem.
    """
    handler = logging.StreamHandler(sys.stderr)
    if verbose:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(PrivateFormatter())
        handler.addFilter(OncePerMinute())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(False)  # whoever has replaced the display of warnings since: from here on it is the log
    logging.captureWarnings(True)
