"""Fig. 4: images of each class with their foreground in transparent red, true and as predicted."""

import numpy as np
from matplotlib.figure import Figure

from histolumen.data.manifest import Manifest
from histolumen.engine.model import load
from histolumen.export.overlay import draw_red
from histolumen.progress import SILENT, Progress
from histolumen.report.figures.pictures import DrawnRun, Sample, choose, small, without_axes
from histolumen.report.figures.style import panels


def draw_samples(
    runs: dict[str, DrawnRun], manifest: Manifest, split: str, images: int, progress: Progress = SILENT
) -> Figure:
    """Draw the samples of each class in columns; rows are the true regions and those of each run.

    Args:
        runs: title -> run.
        manifest: images and, if there are any, masks.
        split: split to draw from.
        images: number of samples of each class.
        progress: receives the number of runs.
    """
    part = manifest.split(split)
    with_truth = bool(part.masked_labels)
    by_class = choose(part, images, with_truth=with_truth)
    samples = {label: [Sample.read(part, row) for row in rows] for label, rows in by_class.items()}
    rows: dict[tuple[str, str], list[np.ndarray]] = {}
    for label, each in samples.items():
        rows |= {(label, "true"): [_red(s, s.truth) for s in each]} if with_truth else {}
        rows |= {(label, title): [] for title in runs}
    for title in progress.track(list(runs), "drawing samples"):
        model = load(runs[title].folder)
        for label, each in samples.items():
            rows[label, title] = [_red(s, runs[title].mask(model.predict(s.image), label)) for s in each]
    columns = max(map(len, rows.values()))
    figure, grid = panels(len(rows), columns, (1.3, 1.3))
    without_axes(grid)
    for number, ((label, source), pictures) in enumerate(rows.items()):
        for column, picture in enumerate(pictures):
            grid[number * columns + column].imshow(picture)
        drawn_by = "predicted" if source in runs and len(runs) == 1 else source
        grid[number * columns].set_ylabel(f"{label}\n{drawn_by}", fontsize=7)
    return figure


def _red(sample: Sample, mask: np.ndarray | None) -> np.ndarray:
    return small(sample.image if mask is None else draw_red(sample.image, mask))
