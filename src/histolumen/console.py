"""Progress on a terminal (a bar with losses and time left) or in a log (a line per epoch, a line every ten seconds)."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from rich import progress as rich_progress
from rich.console import Console

from histolumen.progress import Progress

T = TypeVar("T")
_LOG_EVERY = 10.0  # seconds between two lines when the output is not a terminal


class ConsoleProgress(Progress):
    """Writes to standard error, so that results on standard output can be piped."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._bar: rich_progress.Progress | None = None
        self._epochs = 0

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:
        if self.console.is_terminal:
            with self._bar_for_now() as bar:
                task = bar.add_task(description, total=len(items), note="")
                try:
                    for item in items:
                        yield item
                        bar.advance(task)
                finally:
                    if bar is self._bar:  # while training, which goes on in the same display
                        bar.remove_task(task)
            return
        last = time.monotonic()
        for number, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - last > _LOG_EVERY or (number == len(items) and number > 1):
                self.message(f"{description}: {number} of {len(items)}")
                last = time.monotonic()

    def message(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)

    def status(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], note=text)

    def training_started(self, epochs: int, steps: int, epochs_done: int) -> None:
        self._epochs = epochs
        self._bar = self._new_bar()
        self._bar.start()
        self._bar.add_task("training", total=epochs * steps, completed=epochs_done * steps, note="")

    def training_step(self, losses: Mapping[str, float], lr: float) -> None:
        if self._bar is not None:
            note = "  ".join([*(f"{name} {value:.3f}" for name, value in losses.items()), f"lr {lr:.2g}"])
            self._bar.update(self._bar.task_ids[0], advance=1, note=note)

    def training_epoch(self, record: Mapping[str, Any]) -> None:
        self.message(epoch_line(record, self._epochs))

    def training_ended(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _bar_for_now(self) -> AbstractContextManager[rich_progress.Progress]:
        """The bar of the training, if there is one, else a new one."""
        return self._new_bar() if self._bar is None else nullcontext(self._bar)

    def _new_bar(self) -> rich_progress.Progress:
        return rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=24),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("left"),
            rich_progress.TimeRemainingColumn(),
            rich_progress.TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )


def epoch_line(record: Mapping[str, Any], epochs: int) -> str:
    """Format an epoch of metrics.jsonl as one line of text."""
    terms = "  ".join(f"{name} {value:.3f}" for name, value in record["loss"].items())
    line = f"epoch {record['epoch']:>3} of {epochs}  {record['seconds']:5.1f} s  {terms}"
    valid = record.get("valid")
    if valid is None:
        return line
    error = f"error {valid['error']:.1f} %  " if "error" in valid else ""
    if "pixel_cross_entropy" in valid:
        error += f"pixel cross-entropy {valid['pixel_cross_entropy']:.3f}  "
    share, spread = 100 * valid["foreground_share"], 100 * valid["foreground_spread"]
    return f"{line}  |  validation: {error}foreground {share:.0f} ± {spread:.0f} %"
