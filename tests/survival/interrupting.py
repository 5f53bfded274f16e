"""Run a `histolumen` command that is killed, or whose disk refuses to write, at a chosen moment.

Moments are counted by the audit events of the interpreter: every file that the command opens, renames or removes below
given folders, which needs no change of the command. A kill may come a little later, in the middle of a computation.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PHASES = {  # function on the stack -> what the command is doing; the first that is found counts
    "save_model": "in a checkpoint",
    "finish_swap": "in a checkpoint",
    "new_file": "writing a file",
    "_propose": "proposing masks",
    "validate": "in an evaluation",
    "measure": "in an evaluation",
    "_epoch": "in a step",
    "predict": "predicting",
    "_predict": "predicting",
    "count_patches": "counting patches",
}


@dataclass(frozen=True)
class Interruption:
    """What happens to a command, and when. The default only counts the moments.

    Args:
        folders: only events below these folders count.
        at: number of the event, counted from 1; 0: never.
        delay: seconds between the event and the kill.
        refuse: error number that every change of a file raises from the event on, instead of a kill.
        renames_only: refuse to rename, but allow everything else.
    """

    folders: tuple[str, ...]
    at: int = 0
    delay: float = 0.0
    refuse: int = 0
    renames_only: bool = False


class Ended(NamedTuple):
    """How a command ended: exit code (negative: killed), what it was doing when killed, events counted, messages."""

    code: int
    phase: str
    events: int
    messages: str


def run(arguments: list[str], interruption: Interruption, *, forked: bool = True) -> Ended:
    """Run one command in a process of its own.

    Args:
        arguments: of `histolumen`.
        interruption: what happens to it.
        forked: fork this process, which has imported everything already, instead of starting an interpreter.
    """
    with tempfile.TemporaryDirectory(prefix="histolumen-") as temporary:
        note, messages = Path(temporary) / "note", Path(temporary) / "messages"
        note.touch()
        if forked:
            code = _fork(arguments, interruption, note, messages)
        else:
            command = [sys.executable, __file__, json.dumps(asdict(interruption)), str(note), *arguments]
            with messages.open("wb") as file:
                code = subprocess.run(command, stdout=file, stderr=file, check=False, timeout=600).returncode
        events, _, phase = note.read_text().strip().partition(" ")
        return Ended(code, phase, int(events or 0), messages.read_text(errors="replace"))


def in_a_fork(work: Callable[[], object]) -> None:
    """Do some work in a process of its own, which may start threads."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, "see above"


def _fork(arguments: list[str], interruption: Interruption, note: Path, messages: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            file = os.open(messages, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
            os._exit(_interrupted(arguments, interruption, note))
        except BaseException:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # must not return to pytest
    deadline = time.monotonic() + 600
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _interrupted(arguments: list[str], interruption: Interruption, note: Path) -> int:
    """Run the command in this process and return its exit code; the number of events is left in `note`."""
    from histolumen.cli import main

    hook = _Hook(interruption, os.open(note, os.O_WRONLY))
    sys.addaudithook(hook)
    sys.argv = ["histolumen", *arguments]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    hook.active = False
    sys.stdout.flush()
    sys.stderr.flush()
    os.pwrite(hook.note, f"{hook.count} ".encode(), 0)
    return code


class _Hook:
    def __init__(self, interruption: Interruption, note: int):
        self.interruption, self.note = interruption, note
        self.active, self.count = True, 0
        self.main = threading.main_thread().ident

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or not (event == "open" or event in _CHANGES) or not self._counts(event, arguments):
            return
        self.count += 1
        plan = self.interruption
        if not plan.at or self.count < plan.at:
            return
        if plan.refuse:
            raise OSError(plan.refuse, os.strerror(plan.refuse), str(arguments[0]))
        self.active = False
        if plan.delay:
            threading.Thread(target=self._kill, daemon=True).start()
        else:
            self._kill()

    def _counts(self, event: str, arguments: tuple[Any, ...]) -> bool:
        path = arguments[0]
        if isinstance(path, int) or (event == "open" and not isinstance(arguments[2], int)):
            return False
        plan = self.interruption
        if event != "open" and arguments[-1] != -1:  # relative to an open folder: the removal of a whole folder
            return not plan.refuse
        if plan.refuse and (event != "os.rename" if plan.renames_only else False):
            return False
        if plan.refuse and event == "open" and not arguments[2] & _WRITING:
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(plan.folders)  # noqa: PTH100 - by name

    def _kill(self) -> None:
        time.sleep(self.interruption.delay)
        frame, names = sys._current_frames().get(self.main or 0), set[str]()
        while frame is not None:
            if f"{os.sep}histolumen{os.sep}" in frame.f_code.co_filename:
                names.add(frame.f_code.co_name)
            frame = frame.f_back
        phase = next((phase for name, phase in _PHASES.items() if name in names), "between these")
        os.pwrite(self.note, f"{self.count} {phase}".encode(), 0)
        os.kill(os.getpid(), signal.SIGKILL)


def refusals() -> dict[str, Interruption]:
    """Disks that refuse, by what the user would call them."""
    return {
        "full": Interruption((), refuse=errno.ENOSPC),
        "read-only": Interruption((), refuse=errno.EROFS),
        "no rename": Interruption((), refuse=errno.EPERM, renames_only=True),
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    plan = Interruption(**{**given, "folders": tuple(given["folders"])})
    code = _interrupted(sys.argv[3:], plan, Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)
