"""Curves: accuracy over epochs, scores over the values of a setting."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from histolumen.report.figures.style import BLUE, GREEN, GREY, ORANGE, panels
from histolumen.report.runs.runner import RunResult
from histolumen.report.runs.table import interval, runs_by_title
from histolumen.report.study import KINDS


def draw_training(runs: dict[str, list[dict[str, Any]]]) -> Figure:
    """Training and validation accuracy, and the loss of each run.

    Args:
        runs: title -> records of metrics.jsonl.
    """
    figure, grid = panels(len(runs), 2, (3.2, 2.1))
    for number, (title, records) in enumerate(runs.items()):
        accuracy, loss = grid[2 * number], grid[2 * number + 1]
        for part, colour, style in (("train", BLUE, "-"), ("valid", ORANGE, "--")):
            points = [(r["epoch"], 100 - r[part]["error"]) for r in records if "error" in r.get(part, {})]
            if points:
                accuracy.plot(*zip(*points, strict=True), color=colour, linestyle=style, label=part)
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


def draw_studies(studies: dict[str, list[RunResult]]) -> Figure:
    """Accuracy, F1+ and F1- over the values of settings: one row per setting, one column per kind (SEM, EEM).

    With several seeds, points are means and error bars half the width of their 95 % interval.

    Args:
        studies: setting -> finished runs.
    """
    kinds = [kind for kind in KINDS if any(run.job.kind == kind for runs in studies.values() for run in runs)]
    figure, grid = panels(len(studies), len(kinds), (3.4, 2.5), sharey=True)
    cells = [(setting, kind) for setting in studies for kind in kinds]
    for axes, (setting, kind) in zip(grid, cells, strict=True):
        own = [run for run in studies[setting] if run.job.kind == kind]
        if own:
            _draw_curves(axes, own)
            _label(axes, setting, kind.upper())
        else:
            axes.set_axis_off()
    for axes in grid[:: len(kinds)]:
        axes.set_ylabel("%")
    next(axes for axes in grid if axes.containers).legend(fontsize=7)
    return figure


def _draw_curves(axes: Axes, runs: list[RunResult]) -> None:
    groups = runs_by_title(runs).values()
    for label, score, colour, marker in (
        ("accuracy", "error", ORANGE, "s"),
        ("F1+", "f1_plus", GREEN, "o"),
        ("F1-", "f1_minus", BLUE, "^"),
    ):
        points = [
            (seeds[0].job.value, *interval([run.evaluation[score] for run in seeds]))
            for seeds in groups
            if all(run.evaluation.get(score) is not None for run in seeds)
        ]
        if points:
            x, means, halves = zip(*points, strict=True)
            y = [100 - mean for mean in means] if score == "error" else means
            bars = halves if any(halves) else None
            axes.errorbar(x, y, bars, color=colour, marker=marker, markersize=4, capsize=2, label=label)


def _label(axes: Axes, setting: str, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(f"$\\{setting}$")
    axes.set_ylim(0, 103)
    if setting == "lambda":
        axes.set_xscale("log")
