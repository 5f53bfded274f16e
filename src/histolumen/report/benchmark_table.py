"""The table of a benchmark: our figures with their intervals, the paper's beside them."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from histolumen.report.benchmark import BenchmarkResult, RunResult
from histolumen.report.rows import BenchmarkRow, Printed
from histolumen.report.tables import Table

_SCORES = {"error": "error", "f1_plus": "F1+", "f1_minus": "F1-", "pxap": "PxAP"}
_NONE = "--"


def benchmark_table(result: BenchmarkResult) -> Table:
    """One line per method."""
    plan = result.plan
    named = any(plan.target in row.printed for row in plan.rows)
    columns = ["method", *_SCORES.values(), "min/run", "binarised"]
    columns += ["paper: error", "paper: F1+", "paper: F1-"] if named else []
    lines = []
    for row in plan.rows:
        runs = [run for run in result.runs if run.row.name == row.name]
        line = [row.title, *(_cell(runs, score) for score in _SCORES), _minutes(runs), plan.binarise]
        lines.append([*line, *_printed(row.printed.get(plan.target))] if named else line)
    return Table(_title(result), columns, lines, _notes(result, named), _best(plan.rows, result.runs))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval by Student's t, over seeds."""
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, float(stats.t.ppf(0.975, len(values) - 1)) * spread


def _values(runs: list[RunResult], score: str) -> list[tuple[float, list[float]]]:
    """The scores of the runs that have one, and their intervals over images."""
    found = [run.evaluation for run in runs if run.evaluation.get(score) is not None]
    return [(evaluation[score], evaluation["interval_95"][score]) for evaluation in found]


def _cell(runs: list[RunResult], score: str) -> str:
    values = _values(runs, score)
    if not values:
        return _NONE
    if len(values) == 1:
        value, (low, high) = values[0]
        return f"{value:.2f} [{low:.1f}, {high:.1f}]"
    mean, half = interval([value for value, _ in values])
    return f"{mean:.2f} ± {half:.2f}"


def _minutes(runs: list[RunResult]) -> str:
    return f"{np.mean([run.seconds for run in runs]) / 60:.1f}" if runs else _NONE


def _printed(printed: Printed | None) -> list[str]:
    if printed is None:
        return [_NONE] * 3
    error = _NONE if printed.error is None else f"{printed.error:.2f}"
    return [error, f"{printed.f1_plus:.2f}", f"{printed.f1_minus:.2f}"]


def _title(result: BenchmarkResult) -> str:
    plan = result.plan
    images = max((run.evaluation["images"] for run in result.runs), default=0)
    return f"{plan.target or 'Benchmark'}: {plan.split} split, {images} images, masks binarised: {plan.binarise}"


def _notes(result: BenchmarkResult, named: bool) -> list[str]:
    plan = result.plan
    notes = ["Percent. F1+ and F1- are Dice of foreground and background, mean over images; PxAP pools all pixels."]
    if len(plan.seeds) == 1:
        notes.append(f"One run per method (seed {plan.seeds[0]}); brackets: 95 % bootstrap interval over images.")
    else:
        seeds = ", ".join(map(str, plan.seeds))
        notes.append(
            f"Mean over seeds {seeds} with the half width of its 95 % interval (Student's t); a single run has its "
            "bootstrap interval over images in brackets."
        )
    honest = "the soft mask at 0.5; no true label or mask is used"
    paper = "as the paper did for its rivals, with the image's true label"
    notes.append(f"Binarisation '{plan.binarise}': {honest if plan.binarise == 'honest' else paper}.")
    training = "each method's own recipe" if plan.recipe is None else f"recipe {plan.recipe} for every method"
    changes = [f"backbone {plan.backbone}"] if plan.backbone else []
    notes.append(f"Training: {', '.join([training, *changes, *plan.overrides])}. U-Net alone reads masks.")
    if named:
        notes.append(
            "Columns 'paper' are printed in the paper (test set, its own backbone and schedule), not measured."
        )
    missing = len(plan.rows) * len(plan.seeds) - len(result.runs)
    return [*notes, f"{missing} run(s) are missing."] if missing else notes


def _best(rows: list[BenchmarkRow], runs: list[RunResult]) -> frozenset[tuple[int, int]]:
    """The best of the methods that learn from labels alone, column by column."""
    rivals = [number for number, row in enumerate(rows) if row.name not in {"all-ones", "unet"}]
    best = set()
    for column, score in enumerate(_SCORES, start=1):
        means = {}
        for number in rivals:
            values = _values([run for run in runs if run.row.name == rows[number].name], score)
            if values:
                means[number] = float(np.mean([value for value, _ in values]))
        if means:
            target = min(means.values()) if score == "error" else max(means.values())
            best |= {(number, column) for number, mean in means.items() if round(mean, 2) == round(target, 2)}
    return frozenset(best)
