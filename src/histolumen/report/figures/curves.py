"""Curves: accuracy over the epochs of a run, scores over a hyper-parameter."""

from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from histolumen.report.figures.style import BLUE, GREEN, GREY, ORANGE, panels
from histolumen.report.study import PointResult, by_label
from histolumen.report.study_plan import StudyPlan


def draw_training(runs: dict[str, list[dict[str, Any]]]) -> Figure:
    """Training and validation accuracy and the loss of each run.

    Args:
        runs: title -> the records of metrics.jsonl.
    """
    figure, grid = panels(len(runs), 2, (3.2, 2.1))
    for number, (title, records) in enumerate(runs.items()):
        accuracy, loss = grid[2 * number], grid[2 * number + 1]
        for part, colour, style in (("train", BLUE, "-"), ("valid", ORANGE, "--")):
            judged = [(r["epoch"], 100 - r[part]["error"]) for r in records if "error" in r.get(part, {})]
            if judged:
                accuracy.plot(*zip(*judged, strict=True), color=colour, linestyle=style, label=part)
        accuracy.set_ylim(0, 103)
        accuracy.set_ylabel("accuracy, %")
        if accuracy.get_legend_handles_labels()[0]:
            accuracy.legend(fontsize=7, loc="lower right")
        else:
            accuracy.text(0.5, 0.5, "does not classify", ha="center", transform=accuracy.transAxes, color=GREY)
        loss.plot([r["epoch"] for r in records], [r["loss"]["total"] for r in records], color=GREEN)
        loss.set_ylabel("training loss")
        for axes in (accuracy, loss):
            axes.set_title(title)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def draw_study(plan: StudyPlan, results: list[PointResult]) -> Figure:
    """One panel for SEM, one for EEM: accuracy, F1+ and F1- over the studied value."""
    figure, grid = panels(1, len(plan.kinds), (3.4, 2.5), sharey=True)
    for axes, kind in zip(grid, plan.kinds, strict=True):
        own = by_label([r for r in results if r.point.kind == kind]).values()
        x = [float(seeds[0].point.value or 0) for seeds in own]
        for label, values, colour, marker in (
            ("accuracy", [100 - _mean(seeds, "error") for seeds in own], ORANGE, "s"),
            ("F1+", [_mean(seeds, "f1_plus") for seeds in own], GREEN, "o"),
            ("F1-", [_mean(seeds, "f1_minus") for seeds in own], BLUE, "^"),
        ):
            axes.plot(x, values, color=colour, marker=marker, markersize=4, label=label)
        _label(axes, plan.study, kind.upper())
    grid[0].set_ylabel("%")
    grid[0].legend(fontsize=7)
    return figure


def _mean(seeds: list[PointResult], score: str) -> float:
    return mean(result.scores[score] for result in seeds)


def _label(axes: Axes, study: str, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(f"$\\{study}$")
    axes.set_ylim(0, 103)
    if study == "lambda":
        axes.set_xscale("log")
