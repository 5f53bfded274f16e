"""Region sizes, sample by sample: what was predicted, what is true, and what a perfectly balanced mask would be."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from histolumen.report.figures.style import BLUE, GREEN, ORANGE, panels


def draw_sizes(evaluations: dict[tuple[str, str], dict[str, Any]]) -> Figure:
    """One panel per method and split, samples sorted by their true size.

    Args:
        evaluations: (title, split) -> evaluation as plain values.
    """
    columns = len({split for _, split in evaluations})
    figure, grid = panels(-(-len(evaluations) // columns), columns, (3.2, 2.1), sharey=True)
    for axes, ((title, split), evaluation) in zip(grid, evaluations.items(), strict=True):
        found = [
            (image["true_foreground_share"], image["foreground_share"])
            for image in evaluation["per_image"]
            if "true_foreground_share" in image
        ]
        true, predicted = np.array(sorted(found)).reshape(-1, 2).T
        x = np.arange(1, len(true) + 1)
        axes.axhline(50, color=ORANGE, linestyle="--", linewidth=1, label="balanced")
        axes.plot(x, true, color=BLUE, linewidth=1, marker="o", markersize=2.5, label="true")
        axes.plot(x, predicted, color=GREEN, linewidth=0, marker="^", markersize=3.5, label="predicted")
        axes.set_ylim(0, 100)
        axes.set_title(f"{title}, {split}")
        axes.set_xlabel("sample, by true size")
        axes.set_ylabel("% of the image")
    grid[0].legend(fontsize=7)
    return figure


def draw_normal_sizes(evaluations: dict[tuple[str, str], dict[str, Any]]) -> Figure | None:
    """Predicted sizes where there is nothing to find; None if there is no such sample."""
    shares = {
        key: [i["foreground_share"] for i in evaluation["per_image"] if i.get("true_foreground_share") == 0]
        for key, evaluation in evaluations.items()
    }
    shares = {key: values for key, values in shares.items() if values}
    if not shares:
        return None
    columns = len({split for _, split in shares})
    figure, grid = panels(-(-len(shares) // columns), columns, (3.2, 2.1))
    for axes in grid[len(shares) :]:
        axes.set_axis_off()
    for axes, ((title, split), values) in zip(grid, shares.items(), strict=False):
        axes.vlines(range(1, len(values) + 1), 0, sorted(values), color=GREEN, linewidth=1.5)
        mean = float(np.mean(values))
        axes.axhline(mean, color=ORANGE, linestyle="--", linewidth=1, label=f"mean {mean:.2f} %")
        axes.set_ylim(0, None)
        axes.set_title(f"{title}, normal samples, {split}")
        axes.set_xlabel("sample, by predicted size")
        axes.set_ylabel("% of the image")
        axes.legend(fontsize=7)
    return figure
