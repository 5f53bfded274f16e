"""Qualitative results: image, ground truth, and one column per method with its errors in colour."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from histolumen.data.manifest import Manifest, Row
from histolumen.engine.model import load
from histolumen.export.overlay import draw_errors
from histolumen.progress import SILENT, Progress
from histolumen.report.figures.pictures import DrawnRun, Sample, choose, evenly_of_all, file_name, small, without_axes
from histolumen.report.figures.style import BLUE, ORANGE, panels


def draw_grids(
    runs: dict[str, DrawnRun], manifest: Manifest, split: str, images: int, progress: Progress = SILENT
) -> dict[str, Figure]:
    """Draw a grid of all classes and one grid per class; return file name -> figure.

    Args:
        runs: title -> run.
        manifest: images and masks.
        split: split to draw from; images are evenly spaced over it.
        images: number of rows of each grid.
        progress: receives the number of methods.
    """
    part = manifest.split(split)
    by_class = choose(part, images)
    pictures = {row: _truth(part, row) for rows in by_class.values() for row in rows}
    for title in progress.track(list(runs), "drawing"):
        model = load(runs[title].folder)
        for row, shown in pictures.items():
            sample = Sample.read(part, row)
            mask = runs[title].mask(model.predict(sample.image), row.label)
            shown.append(small(draw_errors(sample.image, mask, _known(sample))))
    grids = {"qualitative": evenly_of_all(by_class, images)}
    grids |= {file_name("qualitative", label): rows for label, rows in by_class.items()}
    return {name: _grid(rows, pictures, ["image", "truth", *runs]) for name, rows in grids.items()}


def _truth(part: Manifest, row: Row) -> list[np.ndarray]:
    """The first columns of a grid: the image and its true mask."""
    sample = Sample.read(part, row)
    truth = np.where(_known(sample)[..., None], 255, 0).astype(np.uint8).repeat(3, 2)
    return [small(sample.image), small(truth)]


def _known(sample: Sample) -> np.ndarray:
    if sample.truth is None:
        raise ValueError(f"{sample.row.image}: rows of a grid are chosen with a known mask")
    return sample.truth


def _grid(rows: Sequence[Row], pictures: dict[Row, list[np.ndarray]], titles: list[str]) -> Figure:
    figure, grid = panels(len(rows), len(titles), (1.25, 1.15))
    without_axes(grid)
    for number, row in enumerate(rows):
        for column, picture in enumerate(pictures[row]):
            grid[number * len(titles) + column].imshow(picture)
        grid[number * len(titles)].set_ylabel(row.label, fontsize=7)
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(title, fontsize=7)
    figure.legend(
        handles=[Patch(color=BLUE, label="missed"), Patch(color=ORANGE, label="false alarm")],
        loc="outside lower center",
        ncols=2,
        fontsize=7,
    )
    return figure
