"""Predicted and true foreground size of each sample, beside a balanced mask of 50 %."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from histolumen.report.figures.style import BLUE, GREEN, ORANGE, panels


def draw_sizes(evaluations: dict[tuple[str, str], dict[str, Any]]) -> Figure:
    """Draw one panel per method and split, samples sorted by true size.

    Args:
        evaluations: (title, split) -> `Evaluation.as_dict()`.
    """
    columns = len({split for _, split in evaluations})
    figure, grid = panels(-(-len(evaluations) // columns), columns, (3.2, 2.1), sharey=True)
    for axes, ((title, split), evaluation) in zip(grid, evaluations.items(), strict=True):
        shares = [
            (image["true_foreground_share"], image["foreground_share"])
            for image in evaluation["per_image"]
            if "true_foreground_share" in image
        ]
        true, predicted = 100 * np.array(sorted(shares)).reshape(-1, 2).T
        x = np.arange(1, len(true) + 1)
        axes.axhline(50, color=ORANGE, linestyle="--", linewidth=1, label="balanced")
        axes.plot(x, true, color=BLUE, linewidth=1, marker="o", markersize=2.5, label="true")
        axes.plot(x, predicted, color=GREEN, linewidth=0, marker="^", markersize=3.5, label="predicted")
        axes.set_ylim(0, 100)
        axes.set_title(f"{title}, {split}")
        axes.set_xlabel("sample, by true size")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("% of the image")
    grid[0].legend(fontsize=7)
    return figure


def draw_normal_sizes(evaluations: dict[tuple[str, str], dict[str, Any]]) -> Figure | None:
    """Draw the predicted sizes of samples without true foreground; None if there are none."""
    shares = {
        key: [100 * i["foreground_share"] for i in evaluation["per_image"] if i.get("true_foreground_share") == 0]
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
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=7, loc="upper left")  # the largest samples are on the right
    return figure
