"""Progress on a terminal (a bar with losses and time left) or in a log (a line per epoch)."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")
console = Console(stderr=True, highlight=False)
_LOG_EVERY = 10.0  # seconds between two lines where there is no terminal


class TrainingReporter(Protocol):
    """What the training loop tells while it works."""

    def step(self, losses: dict[str, float], lr: float) -> None: ...

    def epoch(self, line: str) -> None: ...

    def note(self, text: str) -> None: ...


class SilentReporter:
    """Says nothing; for secondary processes and tests."""

    def step(self, losses: dict[str, float], lr: float) -> None:
        """Ignore a step."""

    def epoch(self, line: str) -> None:
        """Ignore an epoch."""

    def note(self, text: str) -> None:
        """Ignore what is being done."""


class ConsoleReporter:
    """A bar over all steps of the run; one line per finished epoch."""

    def __init__(self, progress: Progress, epochs: int, steps: int, done_epochs: int):
        self.progress = progress
        self.task = progress.add_task("training", total=epochs * steps, completed=done_epochs * steps, note="")

    def step(self, losses: dict[str, float], lr: float) -> None:
        """Advance the bar by one step."""
        note = "  ".join([*(f"{name} {value:.3f}" for name, value in losses.items()), f"lr {lr:.2g}"])
        self.progress.update(self.task, advance=1, note=note)

    def epoch(self, line: str) -> None:
        """Print one line that stays."""
        console.print(line, soft_wrap=True)

    def note(self, text: str) -> None:
        """Say beside the bar what is being done."""
        self.progress.update(self.task, note=text)


@contextmanager
def console_reporter(epochs: int, steps: int, done_epochs: int) -> Iterator[ConsoleReporter]:
    """Show training progress for the length of the block."""
    with _bar() as progress:
        yield ConsoleReporter(progress, epochs, steps, done_epochs)


def track(items: Sequence[T], description: str) -> Iterable[T]:
    """Iterate with a bar on a terminal, or with a line every ten seconds in a log."""
    if console.is_terminal:
        with _bar() as progress:
            task = progress.add_task(description, total=len(items), note="")
            for item in items:
                yield item
                progress.advance(task)
        return
    last = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - last > _LOG_EVERY or (number == len(items) and number > 1):
            console.print(f"{description}: {number} of {len(items)}", soft_wrap=True)
            last = time.monotonic()


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )
