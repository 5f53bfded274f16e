"""Qualitative results: image, ground truth, and one column per method with its errors in colour."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest, Row
from histolumen.engine.evaluate import Binarisation, true_mask
from histolumen.engine.model import load
from histolumen.errors import DataError
from histolumen.export.overlay import draw_errors
from histolumen.progress import SILENT, Progress
from histolumen.report.figures.style import BLUE, ORANGE, panels

_SIDE = 320  # longer side of an image in the figure, in pixels


def draw_grid(
    runs: dict[str, Path],
    manifest: Manifest,
    split: str,
    images: int,
    binarise: Binarisation = "threshold",
    progress: Progress = SILENT,
) -> Figure:
    """Draw images of every class, evenly spaced over the split.

    Args:
        runs: title -> run folder.
        manifest: images and masks.
        split: split to draw from.
        images: number of rows.
        binarise: how soft masks are binarised.
        progress: receives the number of methods.
    """
    part = manifest.split(split)
    rows = choose(part, images)
    figure, grid = panels(len(rows), 2 + len(runs), (1.25, 1.15))
    decoded = [_decode(part, row) for row in rows]
    for number, (row, (image, truth)) in enumerate(zip(rows, decoded, strict=True)):
        for column, picture in enumerate((image, np.where(truth[..., None], 255, 0).astype(np.uint8).repeat(3, 2))):
            grid[number * (2 + len(runs)) + column].imshow(_small(picture))
        grid[number * (2 + len(runs))].set_ylabel(row.label, fontsize=7)
    for column, title in enumerate(progress.track(list(runs), "drawing"), start=2):
        model = load(runs[title])
        for number, (row, (image, truth)) in enumerate(zip(rows, decoded, strict=True)):
            prediction = model.predict(image)
            mask = prediction.mask if binarise == "threshold" else prediction.mask_by_label(row.label)
            grid[number * (2 + len(runs)) + column].imshow(_small(draw_errors(image, mask, truth)))
    for axes in grid:
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
    for axes, title in zip(grid, ["image", "truth", *runs], strict=False):
        axes.set_title(title, fontsize=7)
    figure.legend(
        handles=[Patch(color=BLUE, label="missed"), Patch(color=ORANGE, label="false alarm")],
        loc="outside lower center",
        ncols=2,
        fontsize=7,
    )
    return figure


def choose(part: Manifest, count: int) -> list[Row]:
    """Choose `count` rows with a known true mask, evenly per class and over the split."""
    by_class: dict[str, list[Row]] = {}
    for row in part.rows:
        if part.knows_mask(row):
            by_class.setdefault(row.label, []).append(row)
    if not by_class:
        raise DataError("no image of this split has a mask; the figure needs ground truth")
    chosen = []
    for number, label in enumerate(sorted(by_class)):
        rows = by_class[label]
        share = count // len(by_class) + (number < count % len(by_class))
        picked = np.linspace(0, len(rows) - 1, min(share, len(rows))).round().astype(int)
        chosen += [rows[index] for index in dict.fromkeys(picked.tolist())]
    return chosen


def _decode(part: Manifest, row: Row) -> tuple[np.ndarray, np.ndarray]:
    image = read_image(part.image_path(row))
    truth = true_mask(part, row, image.shape[:2])
    if truth is None:
        raise DataError(f"{row.image}: the true mask is unknown")
    return image, truth


def _small(picture: np.ndarray) -> np.ndarray:
    shrunk = Image.fromarray(picture)
    shrunk.thumbnail((_SIDE, _SIDE))
    return np.asarray(shrunk)
