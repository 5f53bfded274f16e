"""The table of a plan: one row per title, scores with intervals, and the paper's scores."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from histolumen.engine.evaluate import Binarisation
from histolumen.report.rows import Printed
from histolumen.report.runs.plan import Job, Plan
from histolumen.report.runs.runner import Results, RunResult
from histolumen.report.tables import Table

_SCORES = {"error": "error", "f1_plus": "F1+", "f1_minus": "F1-", "pxap": "PxAP"}
_BINARISED = {
    "threshold": "the soft mask at 0.5; no true label or mask is used",
    "true-label": "the paper's rule for its baselines, which uses the true label of the image",
}
_BINARISED_WITHOUT_LABEL = "the paper's rule for its baselines: the argmax over class maps is a class with foreground"
_UNDEFINED = "--"


def results_table(results: Results) -> Table:
    """One row per title, in the order of the plan; a row summarises all seeds."""
    plan = results.plan
    jobs = {job.title: job for job in reversed(plan.jobs())}  # the first of several seeds
    titles = list(reversed(jobs))
    with_paper = any(job.printed for job in jobs.values())
    columns = [plan.first_column, *_SCORES.values(), "min/run", "binarised", *(["start"] if plan.shows_start else [])]
    columns += ["paper: error", "paper: F1+", "paper: F1-"] if with_paper else []
    grouped = runs_by_title(results.runs)
    rows = []
    for title in titles:
        runs = grouped.get(title, [])
        hidden = set() if jobs[title].shows_error else {"error"}
        scores = [_UNDEFINED if score in hidden else _cell(runs, score) for score in _SCORES]
        row = [title, *scores, _minutes(runs), jobs[title].binarise]
        row += [jobs[title].start] if plan.shows_start else []
        rows.append([*row, *_printed(jobs[title].printed)] if with_paper else row)
    ranked = {number: grouped.get(title, []) for number, title in enumerate(titles) if jobs[title].ranked}
    without_error = {number for number, title in enumerate(titles) if not jobs[title].shows_error}
    images = max((run.evaluation["images"] for run in results.runs), default=0)
    title = f"{plan.name}: {plan.split} split, {images} images, masks binarised: {plan.binarise}"
    if plan.shows_start and len({job.start for job in jobs.values() if job.ranked}) > 1:
        title += ". Rows start from different weights: compare them with care"
    return Table(title, columns, rows, _notes(plan, len(results.runs), with_paper), _best(ranked, without_error))


def table_name(plan: Plan) -> str:
    """File name of the table without suffix; each binarisation has its own table."""
    return "table" if plan.binarise == "threshold" else f"table-{plan.binarise}"


def runs_by_title(runs: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """The runs of each title, one per seed."""
    grouped: dict[str, list[RunResult]] = {}
    for run in runs:
        grouped.setdefault(run.job.title, []).append(run)
    return grouped


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds and half the width of its 95 % interval (Student's t); 0 for a single value."""
    if len(values) == 1:
        return values[0], 0.0
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * spread


def _scored(runs: list[RunResult], score: str) -> list[RunResult]:
    """The runs for which the score is defined."""
    return [run for run in runs if run.evaluation.get(score) is not None]


def _cell(runs: list[RunResult], score: str) -> str:
    scored = [run.evaluation for run in _scored(runs, score)]
    if not scored:
        return _UNDEFINED
    if len(scored) == 1:
        low, high = scored[0]["interval_95"][score]
        return f"{scored[0][score]:.2f} [{low:.1f}, {high:.1f}]"
    mean, half = interval([evaluation[score] for evaluation in scored])
    return f"{mean:.2f} ± {half:.2f}"


def _minutes(runs: list[RunResult]) -> str:
    return f"{np.mean([run.seconds for run in runs]) / 60:.1f}" if runs else _UNDEFINED


def _printed(printed: Printed | None) -> list[str]:
    values = (printed.error, printed.f1_plus, printed.f1_minus) if printed else (None, None, None)
    return [_UNDEFINED if value is None else f"{value:.2f}" for value in values]


def _notes(plan: Plan, finished: int, with_paper: bool) -> list[str]:
    jobs = plan.jobs()
    seeds = sorted({job.config.seed for job in jobs})
    notes = ["Percent. F1+ and F1- are Dice of foreground and background, mean over images; PxAP pools all pixels."]
    if len(seeds) == 1:
        notes.append(f"One run per row (seed {seeds[0]}); brackets: 95 % bootstrap interval over images.")
    else:
        notes.append(
            f"Mean over seeds {', '.join(map(str, seeds))} with half the width of its 95 % interval (Student's t); "
            "brackets: single run, 95 % bootstrap interval over images."
        )
    by_rule = {job.binarise: job for job in jobs}
    notes += [f"Binarisation '{job.binarise}': {_binarised(jobs, job.binarise)}." for job in by_rule.values()]
    notes += plan.training_notes
    if with_paper:
        notes.append("Columns 'paper': published values (test set, its own backbone and schedule), not measured.")
    missing = len(jobs) - finished
    return [*notes, f"{missing} run(s) are missing."] if missing else notes


def _binarised(jobs: list[Job], rule: Binarisation) -> str:
    """A rule of binarisation in words."""
    negative = {job.config.images.negative_class for job in jobs} - {None}
    if rule == "threshold" or not negative:
        return _BINARISED[rule]
    return f"{_BINARISED_WITHOUT_LABEL} (not {' or '.join(sorted(map(str, negative)))}), whatever the label"


def _best(ranked: dict[int, list[RunResult]], without_error: set[int]) -> frozenset[tuple[int, int]]:
    """Cells with the best mean of their column among the ranked rows."""
    best = set()
    for column, score in enumerate(_SCORES, start=1):
        means = {
            row: round(float(np.mean([run.evaluation[score] for run in scored])), 2)
            for row, runs in ranked.items()
            if (scored := _scored(runs, score)) and not (score == "error" and row in without_error)
        }
        target = min(means.values(), default=None) if score == "error" else max(means.values(), default=None)
        best |= {(row, column) for row, mean in means.items() if mean == target}
    return frozenset(best)
