"""Progress reports of long operations. The library never prints: it calls a `Progress`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Progress:
    """Receives progress and messages; this base class ignores them.

    Pass an instance of a subclass for a custom progress bar or callback. The command line uses
    `histolumen.console.ConsoleProgress`.
    """

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:  # noqa: ARG002 - for subclasses
        """Iterate over `items`; a subclass may show how many are done."""
        return items

    def message(self, text: str) -> None:
        """Report a permanent line."""

    def status(self, text: str) -> None:
        """Report the current activity; the next status replaces it."""

    def training_started(self, epochs: int, steps: int, epochs_done: int) -> None:
        """Training starts, or resumes after `epochs_done` epochs. An epoch has `steps` steps."""

    def training_step(self, losses: Mapping[str, float], lr: float) -> None:
        """A step is done: the value of each loss term, and the learning rate."""

    def training_epoch(self, record: Mapping[str, Any]) -> None:
        """An epoch is done; `record` is its line of metrics.jsonl."""

    def training_ended(self) -> None:
        """Training has finished or failed."""


SILENT = Progress()
