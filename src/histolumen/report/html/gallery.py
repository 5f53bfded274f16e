"""The gallery of an evaluated model: the worst masks first or, without true masks, the least certain classes."""

import bisect
from pathlib import Path
from typing import Any

import numpy as np

from histolumen.data.manifest import Row
from histolumen.engine.prediction import NO_TISSUE, Prediction
from histolumen.metrics import PixelCounts, count_pixels
from histolumen.report.html.content import Card, Gallery
from histolumen.report.html.pictures import LEGEND, OUTLINE, embed, layers_of

CARDS = 18  # images in a gallery, unless the user asks for more
Rank = tuple[int, float]
"""Smaller is shown earlier: images with a true mask by mIoU, then the others by the probability of their class."""


def record_rank(record: dict[str, Any]) -> Rank:
    """Rank of an image from its row of the per-image table."""
    return (0, record["miou"] / 100) if record.get("miou") is not None else (1, record["probability"])


def first_shown(evaluation: dict[str, Any], count: int) -> set[str]:
    """Names of the images that the gallery of a stored evaluation shows."""
    return {record["image"] for record in sorted(evaluation["per_image"], key=record_rank)[:count]}


class WorstFirst:
    """Keeps the cards of the first `count` images by rank while a split is evaluated; only those are drawn."""

    def __init__(self, count: int = CARDS):
        self.count, self.total = count, 0
        """Number of images to keep, and of all images that they are the first of."""
        self._cards: list[tuple[Rank, int, Card]] = []

    def consider(self, row: Row, prediction: Prediction, truth: np.ndarray | None) -> None:
        """Add an image if it belongs to the first ones; `evaluate` calls this for each."""
        pixels = None if truth is None else count_pixels(prediction.soft_mask, truth, prediction.mask)
        rank: Rank = (1, prediction.probability) if pixels is None else (0, pixels.miou)
        self.total += 1
        if len(self._cards) == self.count and rank >= self._cards[-1][0]:
            return
        card = _card(row, prediction, truth, pixels)
        bisect.insort(self._cards, (rank, self.total, card))
        del self._cards[self.count :]

    def gallery(self) -> Gallery | None:
        """The cards; None if no image was considered."""
        if not self._cards:
            return None
        by_mask = self._cards[0][0][0] == 0
        order = "worst masks first (by mIoU)" if by_mask else "least certain first: there are no true masks"
        shown = f"{len(self._cards)} of {self.total} images" if self.total > len(self._cards) else "all images"
        return make_gallery([card for _, _, card in self._cards], f"{shown.capitalize()}, {order}.")


def make_gallery(cards: list[Card], note: str, start: str = OUTLINE) -> Gallery:
    """A gallery with the legend of its layers."""
    layers = list(dict.fromkeys(picture.layer for card in cards for picture in card.layers))
    legend = [entry for layer in layers for entry in LEGEND.get(layer, ())]
    return Gallery(cards, note, layers.index(start) if start in layers else 0, legend)


def _card(row: Row, prediction: Prediction, truth: np.ndarray | None, pixels: PixelCounts | None) -> Card:
    layers = layers_of(prediction.image, prediction.soft_mask, prediction.mask, truth)
    height, width = next(iter(layers.values())).shape[:2]
    caption = [f"true class: {row.label}"] if prediction.classifies else []
    share = f"foreground {100 * prediction.foreground_share:.0f} %"
    if pixels is None:
        caption.append(share)
    else:
        scores = {"F1+": pixels.f1_plus, "F1-": pixels.f1_minus}
        caption.append("  ".join(f"{name} {100 * value:.1f}" for name, value in scores.items() if np.isfinite(value)))
        caption.append(f"{share}, true {100 * pixels.true_share:.0f} %")
    verdict = verdict_of(prediction.label, prediction.probability) if prediction.classifies else ""
    wrong = prediction.label != row.label
    mark = ("wrong" if wrong else "right") if prediction.classifies else ""
    return Card(Path(row.image).name, (width, height), embed(layers), caption, verdict, mark)


def counted(number: int, name: str) -> str:
    """A number of things in words."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def verdict_of(label: str, probability: float) -> str:
    """The answer in short."""
    return label if label == NO_TISSUE else f"{label} {probability:.2f}"
