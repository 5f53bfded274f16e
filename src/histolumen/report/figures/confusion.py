"""Pixel confusion matrices, one per method."""

import numpy as np
from matplotlib.figure import Figure

from histolumen.report.figures.style import panels

_NAMES = ("background", "foreground")


def draw_confusions(matrices: dict[str, dict[str, int]], columns: int = 5) -> Figure:
    """Draw confusion matrices, normalised by the true class.

    Args:
        matrices: title -> `Evaluation.confusion`.
        columns: number of matrices per row.
    """
    columns = min(columns, len(matrices))
    figure, grid = panels(-(-len(matrices) // columns), columns, (1.9, 2.0))
    for axes in grid[len(matrices) :]:
        axes.set_axis_off()
    for number, (axes, (title, counts)) in enumerate(zip(grid, matrices.items(), strict=False)):
        values = np.array(
            [
                [counts["true_negative"], counts["false_positive"]],
                [counts["false_negative"], counts["true_positive"]],
            ],
            dtype=float,
        )
        shares = 100 * values / np.maximum(values.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        for (row, column), share in np.ndenumerate(shares):
            axes.text(column, row, f"{share:.1f} %", ha="center", va="center", color="white" if share > 55 else "black")
        axes.set_title(title)
        axes.set_xticks([0, 1], _NAMES, fontsize=7)
        axes.set_yticks([0, 1], _NAMES if number % columns == 0 else ("", ""), fontsize=7, rotation=90, va="center")
        axes.tick_params(length=0)
        axes.set_xlabel("predicted", fontsize=7)
        if number % columns == 0:
            axes.set_ylabel("true", fontsize=7)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure
