"""Overrides that make any recipe small enough for a test (timm's smallest network on 64-pixel images), and a `Progress`
that records its calls."""

from collections.abc import Iterable, Sequence
from typing import Any

from histolumen.progress import Progress

SMALL = (
    "backbone.name=test_resnet",
    "backbone.weights=none",
    "backbone.output_stride=16",
    "images.short_side=64",
    "images.crop=64",
    "train.epochs=2",
)
"""For recipes of any method."""
TINY = (*SMALL, "method.classifier_scale=1.0")
"""For recipes of Max-Min."""


class Recorder(Progress):
    """Records all items, messages and epochs; can raise KeyboardInterrupt after `stop_after` items."""

    def __init__(self, stop_after: int | None = None):
        self.seen: list[Any] = []
        self.messages: list[str] = []
        self.epochs: list[Any] = []
        self.stop_after = stop_after

    def track(self, items: Sequence[Any], description: str) -> Iterable[Any]:
        for item in items:
            if len(self.seen) == self.stop_after:
                raise KeyboardInterrupt
            yield item
            self.seen.append(item)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def training_epoch(self, record: Any) -> None:
        self.epochs.append(record)
