"""Qualitative results: image, truth, and one column per method with its errors tinted."""

from collections.abc import Callable, Iterable
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
from histolumen.report.figures.style import BLUE, ORANGE, panels

_SIDE = 320  # pixels of the longer side in the figure


def draw_grid(
    runs: dict[str, Path],
    manifest: Manifest,
    split: str,
    images: int,
    binarise: Binarisation = "honest",
    track: Callable[[list[str]], Iterable[str]] = lambda titles: titles,
) -> Figure:
    """Some images of every class, spread evenly over the split.

    Args:
        runs: title -> run folder.
        manifest: images and masks.
        split: which part of it.
        images: how many rows.
        binarise: how soft masks become binary ones.
        track: wraps the titles to show progress.
    """
    part = manifest.split(split)
    rows = choose(part, images)
    figure, grid = panels(len(rows), 2 + len(runs), (1.25, 1.15))
    decoded = [_decode(part, row) for row in rows]
    for number, (row, (image, truth)) in enumerate(zip(rows, decoded, strict=True)):
        for column, picture in enumerate((image, np.where(truth[..., None], 255, 0).astype(np.uint8).repeat(3, 2))):
            grid[number * (2 + len(runs)) + column].imshow(_small(picture))
        grid[number * (2 + len(runs))].set_ylabel(row.label, fontsize=7)
    for column, title in enumerate(track(list(runs)), start=2):
        model = load(runs[title])
        for number, (row, (image, truth)) in enumerate(zip(rows, decoded, strict=True)):
            prediction = model.predict(image)
            mask = prediction.mask if binarise == "honest" else prediction.mask_by_label(row.label)
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
    """`count` rows whose true mask is known, the classes in turn, spread over the split."""
    by_class: dict[str, list[Row]] = {}
    for row in part.rows:
        if part.knows_mask(row):
            by_class.setdefault(row.label, []).append(row)
    if not by_class:
        raise DataError("no image of this split has a mask to compare with")
    chosen = []
    for number, label in enumerate(sorted(by_class)):
        own = by_class[label]
        share = count // len(by_class) + (number < count % len(by_class))
        picked = np.linspace(0, len(own) - 1, min(share, len(own))).round().astype(int)
        chosen += [own[index] for index in dict.fromkeys(picked.tolist())]
    return chosen


def _decode(part: Manifest, row: Row) -> tuple[np.ndarray, np.ndarray]:
    image = read_image(part.image_path(row))
    truth = true_mask(part, row, image.shape[:2])
    if truth is None:
        raise DataError(f"{row.image}: its true mask is not known")
    return image, truth


def _small(picture: np.ndarray) -> np.ndarray:
    shrunk = Image.fromarray(picture)
    shrunk.thumbnail((_SIDE, _SIDE))
    return np.asarray(shrunk)
