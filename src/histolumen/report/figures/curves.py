"""Curves: accuracy over epochs, scores over the values of a setting."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from histolumen.report.figures.style import BLUE, GREEN, GREY, ORANGE, panels
from histolumen.report.runs.runner import RunResult
from histolumen.report.runs.table import interval, runs_by_title


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


def draw_study(setting: str, runs: list[RunResult]) -> Figure:
    """Accuracy, F1+ and F1- over the values of a setting, one panel per kind.

    With several seeds, points are means and error bars half the width of their 95 % interval.
    """
    kinds = list(dict.fromkeys(run.job.kind for run in runs))
    figure, grid = panels(1, len(kinds), (3.4, 2.5), sharey=True)
    for axes, kind in zip(grid, kinds, strict=True):
        groups = runs_by_title(run for run in runs if run.job.kind == kind).values()
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
        _label(axes, setting, str(kind).upper())
    grid[0].set_ylabel("%")
    grid[0].legend(fontsize=7)
    return figure


def _label(axes: Axes, setting: str, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(f"$\\{setting}$")
    axes.set_ylim(0, 103)
    if setting == "lambda":
        axes.set_xscale("log")
