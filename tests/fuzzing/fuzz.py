"""Feed damaged files to everything that reads files: each is accepted or refused with a `HistolumenError`: `make fuzz`.

Usage: python tests/fuzzing/fuzz.py [--count 10000] [--seed 1] [--kind images] [--keep FOLDER]

The inputs of a kind are read by a forked process, which must not raise anything else, crash, use more than 5 s of
processor time or more than 1 GB of memory for one of them.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":  # as pytest does, see pyproject.toml
    sys.path[:0] = [str(Path(__file__).parents[1])]

from kinds import Kind, kinds

from histolumen.errors import HistolumenError

MAX_SECONDS, MAX_BYTES = 5.0, 10**9
_WATCH_SECONDS = 120  # of wall time, for a process that waits instead of computing


class _TooSlowError(BaseException):
    """Not an `Exception`, which readers may catch."""


@dataclass
class Tally:
    """Results of one kind."""

    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    most_bytes: int = 0
    failures: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, line: str) -> None:
        """Count one line that the reading process has written."""
        verdict, seconds, grown, text = line.split(" ", 3)
        self.accepted += verdict == "accepted"
        self.refused += verdict == "refused"
        self.slowest, self.most_bytes = max(self.slowest, float(seconds)), max(self.most_bytes, int(grown))
        if verdict == "failed":
            self.failures.append(text)


def judge(kind: Kind, data: bytes, folder: Path) -> str:
    """Read one input and return the verdict: verdict, seconds, bytes, and the traceback of a failure in one line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / kind.name
    path.write_bytes(data)
    before, started, verdict, text = _reset_peak(), time.process_time(), "accepted", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(path)
    except HistolumenError as error:
        verdict = "refused"
        if not str(error).strip():
            verdict, text = "failed", "an error without a message"
    except (Exception, _TooSlowError):  # noqa: BLE001 - what is looked for
        verdict, text = "failed", traceback.format_exc()
    seconds, grown = time.process_time() - started, max(0, _peak() - before)
    if seconds > MAX_SECONDS or grown > MAX_BYTES:
        verdict, text = "failed", f"{seconds:.1f} s, {grown / 1e6:.0f} MB {text}"
    return f"{verdict} {seconds:.3f} {grown} {text!r}"


def fuzz(kind: Kind, count: int, seed: str, folder: Path, keep: Path | None = None) -> Tally:
    """Read `count` damaged files of a kind in forked processes; a new one follows one that dies."""
    tally, done = Tally(), 0
    while done < count:
        lines, status = _read_forked(kind, range(done, count), seed, folder)
        for line in lines:
            failures = len(tally.failures)
            tally.add(line)
            if len(tally.failures) > failures and keep is not None:
                _keep(kind, seed, done, keep)
            done += 1
        if status and done < count:
            tally.failures.append(f"input {done}: the process died ({os.waitstatus_to_exitcode(status)})")
            if keep is not None:
                _keep(kind, seed, done, keep)
            done += 1
    return tally


def example(kind: Kind, seed: str, number: int) -> bytes:
    """The damaged file with this number: the same in every run with the same seed."""
    return kind.make(random.Random(f"{seed} {number}"))


def _read_forked(kind: Kind, numbers: range, seed: str, folder: Path) -> tuple[list[str], int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _limit_memory()
        signal.signal(signal.SIGPROF, _too_slow)
        for number in numbers:
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(used.ru_utime + used.ru_stime + 4 * MAX_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))  # kills code that is not Python
            signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
            signal.alarm(_WATCH_SECONDS)
            line = judge(kind, example(kind, seed, number), folder / "input")
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(writing, (line.replace("\n", " ")[:60_000] + "\n").encode(errors="replace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        lines = pipe.read().splitlines()
    return lines, os.waitpid(child, 0)[1]


def _too_slow(*_: object) -> None:
    raise _TooSlowError


def _limit_memory() -> None:
    """Far above what is allowed, to protect the machine; `judge` measures what is really used."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 8 * MAX_BYTES, resource.RLIM_INFINITY))


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """Most memory of this process since the last reset, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _keep(kind: Kind, seed: str, number: int, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    (keep / f"{number}-{kind.name}").write_bytes(example(kind, seed, number))


def main() -> None:
    """Fuzz all kinds, or one, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="inputs of all kinds together")
    parser.add_argument("--seed", type=int, default=None, help="printed if not given")
    parser.add_argument("--kind", action="append", help="only this kind; repeatable")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for inputs that failed")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
        every = kinds(Path(root))
        chosen = {name: every[name] for name in options.kind or every}
        weights = {name: 6 if name == "images" else 1 for name in chosen}  # as many as all others
        for name, kind in chosen.items():
            count = -(-options.count * weights[name] // sum(weights.values()))
            started = time.monotonic()
            tally = fuzz(kind, count, f"{seed} {name}", Path(root) / "work", options.keep / name)
            shutil.rmtree(Path(root) / "work", ignore_errors=True)
            print(
                f"{name}: {count} inputs, {tally.accepted} accepted, {tally.refused} refused, "
                f"{len(tally.failures)} failures; slowest {tally.slowest:.2f} s, most memory "
                f"{tally.most_bytes / 1e6:.0f} MB; {time.monotonic() - started:.0f} s",
                flush=True,
            )
            for text, times in Counter(each[-700:] for each in tally.failures).most_common(12):
                print(f"  {times} x {text}", flush=True)
            failed += len(tally.failures)
    if failed:
        print(f"{failed} failures; the inputs are in {options.keep}")
        sys.exit(1)


if __name__ == "__main__":
    main()
