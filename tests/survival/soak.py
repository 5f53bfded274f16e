"""Kill commands at random moments, or refuse to write, and check that nothing is lost: `make soak-kills`.

Usage: python tests/survival/soak.py train=50 predict=10 [--seed 1] [--real]
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

if __name__ == "__main__":  # as pytest does, see pyproject.toml
    here = Path(__file__).parents[1]
    sys.path[:0] = [str(here), str(here / "slides")]

from interrupting import Ended, Interruption, in_a_fork, refusals, run
from scenarios import SCENARIOS
from states import outcome, read_everything, unfinished

_LONGEST_DELAY = 0.05  # seconds between a file event and the kill
_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory: a flush takes no time


@dataclass
class Tally:
    """What was done to a command."""

    kills: int = 0
    finished: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    refusals: int = 0


class Soak:
    """One command, its outcome when nothing interrupts it, and what happens if something does."""

    def __init__(self, name: str, root: Path, *, forked: bool = True, say: Callable[[str], None] = lambda _: None):
        self.name, self.root, self.forked, self.say = name, root, forked, say
        self.scenario, self.tally, self.inputs = SCENARIOS[name], Tally(), root / "inputs"
        self.inputs.mkdir(parents=True)
        in_a_fork(lambda: self.scenario.make(self.inputs))  # libraries for slides start threads, which no fork has
        self.folders = (str(root.absolute()),)
        ended = self._call(root / "unbroken")
        assert ended.code == 0, ended.messages
        self.events = ended.events
        self.expected = outcome(root / "unbroken")
        assert not unfinished(root / "unbroken"), unfinished(root / "unbroken")

    def _call(self, out: Path, interruption: Interruption | None = None, *, again: bool = False) -> Ended:
        arguments = [*self.scenario.command(self.inputs, out), *(self.scenario.again if again else ())]
        plan = interruption or Interruption(())
        return run(arguments, replace(plan, folders=plan.folders or self.folders), forked=self.forked)

    def kill(self, kills: int, seed: int) -> None:
        """Kill the command `kills` times in all; each time it is called again, until it has finished."""
        rng = random.Random(seed)
        while self.tally.kills < kills:
            out = self.root / f"broken{self.tally.finished}"
            known: set[Path] = set()
            again = False
            while True:
                plan = None
                if self.tally.kills < kills:
                    delay = rng.choice([0, rng.uniform(0, _LONGEST_DELAY)])
                    plan = Interruption(self.folders, rng.randint(1, max(2, self.events // 2)), delay)
                ended = self._call(out, plan, again=again)
                again = True
                if ended.code >= 0:
                    break
                self.tally.kills += 1
                self.tally.phases[ended.phase] += 1
                self.say(f"{self.name}: kill {self.tally.kills} of {kills}, {ended.phase}, event {ended.events}")
                self._check_readable(out, known)
            assert ended.code == 0, ended.messages
            self._check_finished(out)

    def refuse(self, moments: int, seed: int) -> None:
        """Let the disk refuse from a random moment on; then call the command again with a disk that works."""
        rng = random.Random(seed)
        for kind, refusal in refusals().items():
            counted = self._call(self.root / f"counted {kind}", replace(refusal, at=10**9, folders=self._out(kind)))
            for number in range(moments):
                out = self.root / f"{kind}{number}"
                plan = replace(refusal, at=rng.randint(1, counted.events), folders=(str(out.absolute()),))
                ended = self._call(out, plan)
                where = f"{self.name}, disk {kind} at write {plan.at} of {counted.events}"
                self.say(f"{where}: exit code {ended.code}: {ended.messages.strip().splitlines()[-1:]}")
                allowed = {2, 3} if kind == "no rename" else {2}  # 3: some slides are left out, each with its reason
                if "no report was written" in ended.messages:
                    allowed = {0}  # everything else was written before
                assert ended.code in allowed, f"{where}: exit code {ended.code}\n{ended.messages}"
                assert "Traceback" not in ended.messages, f"{where}\n{ended.messages}"
                self.tally.refusals += 1
                known: set[Path] = set()
                if out.exists():
                    self._check_readable(out, known)
                after = self._call(out, again=True)
                assert after.code == 0, f"{where}, then again\n{after.messages}"
                self._check_finished(out)

    def _out(self, kind: str) -> tuple[str, ...]:
        return (str((self.root / f"counted {kind}").absolute()),)

    def _check_readable(self, out: Path, known: set[Path]) -> None:
        """In a copy: reading completes an interrupted swap, which the command must do itself."""
        if not out.exists():
            return
        copy = self.root / "copy"
        shutil.copytree(out, copy)
        try:
            read_everything(copy, known)
        finally:
            shutil.rmtree(copy)

    def _check_finished(self, out: Path) -> None:
        self.tally.finished += 1
        result = outcome(out)
        assert set(result) == set(self.expected), sorted(set(result) ^ set(self.expected))
        different = [name for name in result if result[name] != self.expected[name]]
        assert not different, f"{out} differs from the unbroken call: {different}"
        assert not unfinished(out), f"{out} has left {unfinished(out)}"


def main() -> None:
    """Soak the commands that are given, and print what they survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", nargs="+", help=f"COMMAND=KILLS, of {', '.join(SCENARIOS)}")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments; printed if not given")
    parser.add_argument("--refusals", type=int, default=2, help="moments at which each kind of disk refuses")
    parser.add_argument("--real", action="store_true", help="start a new interpreter for every call: slow")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    for entry in options.plan:
        name, _, kills = entry.partition("=")
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="survival-", dir=_DISK) as root:
            soak = Soak(name, Path(root), forked=not options.real, say=lambda line: print(line, flush=True))
            soak.kill(int(kills or 10), seed)
            soak.refuse(options.refusals, seed)
        tally = soak.tally
        phases = ", ".join(f"{phase} {count}" for phase, count in tally.phases.most_common())
        print(
            f"{name}: {tally.kills} kills survived ({phases}), {tally.refusals} refusals of the disk; "
            f"{tally.finished} calls finished with the bytes of the unbroken one, "
            f"{time.monotonic() - started:.0f} s, seed {seed}",
            flush=True,
        )


if __name__ == "__main__":
    main()
