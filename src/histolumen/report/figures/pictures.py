"""What all figures of images share: the runs they show, the choice of images, and panels without axes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest, Row
from histolumen.engine.evaluate import Binarisation, true_mask
from histolumen.engine.prediction import Prediction
from histolumen.errors import DataError
from histolumen.report.choice import evenly

_SIDE = 320  # longer side of an image in a figure, in pixels


@dataclass(frozen=True)
class DrawnRun:
    """A run folder, and how its masks are binarised."""

    folder: Path
    binarise: Binarisation = "threshold"

    def mask(self, prediction: Prediction, label: str) -> np.ndarray:
        """The binary mask of an image whose true class is `label`."""
        return prediction.mask if self.binarise == "threshold" else prediction.mask_by_label(label)


@dataclass(frozen=True)
class Sample:
    """One decoded image; `truth` is None where the true mask is unknown."""

    row: Row
    image: np.ndarray
    truth: np.ndarray | None

    @classmethod
    def read(cls, part: Manifest, row: Row) -> "Sample":
        """Decode image and true mask."""
        image = read_image(part.image_path(row))
        return cls(row, image, true_mask(part, row, image.shape[:2]))


def choose(part: Manifest, count: int, *, with_truth: bool = True) -> dict[str, list[Row]]:
    """Choose up to `count` rows of each class, evenly over the split.

    Args:
        part: one split.
        count: rows per class.
        with_truth: only rows with a known true mask.
    """
    by_class: dict[str, list[Row]] = {}
    for row in part.rows:
        if part.knows_mask(row) or not with_truth:
            by_class.setdefault(row.label, []).append(row)
    if not by_class:
        raise DataError("no image of this split has a mask; the figure needs ground truth")
    return {label: evenly(by_class[label], count) for label in sorted(by_class)}


def evenly_of_all(by_class: dict[str, list[Row]], count: int) -> list[Row]:
    """Choose `count` rows, as many of each class as possible."""
    chosen = []
    for number, rows in enumerate(by_class.values()):
        chosen += evenly(rows, count // len(by_class) + (number < count % len(by_class)))
    return chosen


def small(picture: np.ndarray) -> np.ndarray:
    """The picture at the resolution of a figure."""
    shrunk = Image.fromarray(picture)
    shrunk.thumbnail((_SIDE, _SIDE))
    return np.asarray(shrunk)


def without_axes(panels: Iterable[Axes]) -> None:
    """Remove ticks and frames."""
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)


def file_name(*parts: str) -> str:
    """Parts joined by hyphens, without characters that are unusual in file names."""
    return "-".join(re.sub(r"[^\w.=+]+", "-", part).strip("-") for part in parts)
