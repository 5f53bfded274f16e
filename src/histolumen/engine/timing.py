"""Where the time of a training goes: seconds by phase."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar, get_args

T = TypeVar("T")
Phase = Literal["waiting for data", "forward", "backward", "optimizer", "proposals", "validation", "checkpoint"]
_SHOWN = 0.005  # seconds; shorter phases are part of "other"


class Stopwatch:
    """Adds up the seconds of each phase; they do not overlap.

    Args:
        synchronise: waits until the device has finished, so that work of a GPU counts in its own phase; None on a CPU.
    """

    def __init__(self, synchronise: Callable[[], None] | None = None):
        self.seconds: dict[Phase, float] = dict.fromkeys(get_args(Phase), 0.0)
        self.steps = 0
        self._synchronise = synchronise
        self._started = time.perf_counter()

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count the block as `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            if self._synchronise is not None:
                self._synchronise()
            self.seconds[name] += time.perf_counter() - started

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield batches, and count the time until each arrives as waiting for data."""
        iterator = iter(batches)
        while True:
            with self.phase("waiting for data"):
                batch = next(iterator, None)
            if batch is None:
                return
            self.steps += 1
            yield batch

    def table(self) -> str:
        """One line per phase: seconds, share of the total, and milliseconds per step for what happens in each step."""
        total = time.perf_counter() - self._started
        rows: list[tuple[str, float]] = [(name, seconds) for name, seconds in self.seconds.items() if seconds >= _SHOWN]
        rows += [("other", max(total - sum(seconds for _, seconds in rows), 0.0)), ("total", total)]
        lines = [f"{self.steps} steps", f"{'':18}{'seconds':>9}{'share':>8}{'ms per step':>13}"]
        for name, seconds in rows:
            in_steps = name in {"waiting for data", "forward", "backward", "optimizer"}
            per_step = f"{1000 * seconds / self.steps:13.1f}" if in_steps and self.steps else ""
            lines.append(f"{name:18}{seconds:9.2f}{seconds / total:8.1%}{per_step}")
        return "\n".join(lines)
