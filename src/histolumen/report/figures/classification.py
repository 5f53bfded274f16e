"""How well classes are told apart (ROC curves), and what their probabilities are worth (reliability diagrams)."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from histolumen.metrics import calibration_bins, roc_points
from histolumen.report.figures.style import BLUE, GREY, ORANGE, panels


def draw_roc(evaluations: dict[str, dict[str, Any]], columns: int = 4) -> Figure | None:
    """Draw one ROC curve per method, for two classes; None if there are more.

    Args:
        evaluations: title -> `Evaluation.as_dict()` of methods that classify.
        columns: number of panels per row.
    """
    names = _classes(evaluations)
    if len(names) != 2:
        return None
    positive = names[1]
    columns = min(columns, len(evaluations))
    figure, grid = panels(-(-len(evaluations) // columns), columns, (2.4, 2.4))
    for axes in grid[len(evaluations) :]:
        axes.set_axis_off()
    for axes, (title, evaluation) in zip(grid, evaluations.items(), strict=False):
        images = evaluation["per_image"]
        false_alarms, found = roc_points(
            np.array([image["label"] == positive for image in images]),
            np.array([image[f"p_{positive}"] for image in images]),
        )
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", linewidth=1)
        axes.plot(100 * false_alarms, 100 * found, color=BLUE)
        axes.set_title(f"{title}\narea {evaluation['auc']:.1f} %")
        axes.set_xlabel(f"% of {names[0]} called {positive}")
        axes.set_ylabel(f"% of {positive} found")
        axes.set_aspect("equal")
    return figure


def draw_reliability(evaluations: dict[str, dict[str, Any]], columns: int = 4) -> Figure:
    """Draw one reliability diagram per method: accuracy over the probability of the predicted class, in ten bins.

    Args:
        evaluations: title -> `Evaluation.as_dict()` of methods that classify.
        columns: number of panels per row.
    """
    columns = min(columns, len(evaluations))
    figure, grid = panels(-(-len(evaluations) // columns), columns, (2.4, 2.4))
    for axes in grid[len(evaluations) :]:
        axes.set_axis_off()
    for axes, (title, evaluation) in zip(grid, evaluations.items(), strict=False):
        images = [image for image in evaluation["per_image"] if image["probability"] > 0]
        confidence = np.array([image["probability"] for image in images])
        correct = np.array([not image["wrong"] for image in images])
        bins = calibration_bins(confidence)
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", linewidth=1)
        for number in np.unique(bins):
            inside = bins == number
            accuracy = 100 * correct[inside].mean()
            axes.bar(10 * number + 5, accuracy, width=9, color=BLUE)
            axes.plot(100 * confidence[inside].mean(), accuracy, color=ORANGE, marker="o", markersize=4, clip_on=False)
            axes.text(10 * number + 5, 3, str(inside.sum()), ha="center", fontsize=6, color="white")
        axes.set_title(f"{title}\ncalibration error {evaluation['ece']:.1f} %")
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 103)
        axes.set_xlabel("probability of the class, %")
        axes.set_ylabel("accuracy, %")
    return figure


def _classes(evaluations: dict[str, dict[str, Any]]) -> list[str]:
    """Names of the classes, from the columns of the first image."""
    first = next(iter(evaluations.values()))["per_image"][0]
    return [key.removeprefix("p_") for key in first if key.startswith("p_")]
