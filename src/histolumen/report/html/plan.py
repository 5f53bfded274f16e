"""The report of a benchmark or study: its table beside the paper's, its curves, and its methods on the same images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest, Row, read_manifest
from histolumen.engine.evaluate import true_mask
from histolumen.engine.model import load
from histolumen.engine.runlog import read_metrics
from histolumen.errors import RunError
from histolumen.progress import SILENT, Progress
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.choice import evenly
from histolumen.report.html.content import (
    COLOURS,
    Axis,
    Bars,
    Block,
    Card,
    Chart,
    Gallery,
    Headline,
    Page,
    Section,
    Series,
    TableBlock,
)
from histolumen.report.html.gallery import make_gallery
from histolumen.report.html.meaning import meaning_of_table
from histolumen.report.html.measured import roc_chart
from histolumen.report.html.pictures import ERRORS, IMAGE, LEGEND, embed, layers_of, reduced
from histolumen.report.html.training import data_table, duration
from histolumen.report.runs.plan import Plan, read_plan
from histolumen.report.runs.runner import Results, RunResult, finished_runs, run_folder
from histolumen.report.runs.table import interval, results_table, runs_by_title
from histolumen.report.study import CURVES, StudyPlan

_COMPARED = 6  # images that all methods are shown on
_BARS = {"f1_plus": "F1+", "f1_minus": "F1-", "pxap": "PxAP"}
_CURVES = {"f1_plus": "F1+", "f1_minus": "F1-", "error": "accuracy"}


def find_plan(folder: Path) -> Plan | None:
    """The plan of a benchmark or study in a folder; None if it holds neither."""
    kinds: tuple[type[Plan], ...] = (BenchmarkPlan, StudyPlan)
    return next((read_plan(folder, kind) for kind in kinds if (folder / kind.file).is_file()), None)


def plan_page(
    folder: Path, plan: Plan, images: Path | None = None, count: int = _COMPARED, progress: Progress = SILENT
) -> Page:
    """Describe the finished runs of a benchmark or study.

    Args:
        folder: of the benchmark or study.
        plan: its plan.
        images: folder of the images, if they have moved.
        count: number of images on which the methods are compared.
        progress: counts the methods that are drawn.
    """
    folders = [run_folder(folder, job) for job in plan.jobs()]
    started = next((each for each in folders if (each / "manifest.csv").is_file()), None)
    if started is None:
        raise RunError(f"{folder}: contains no run yet; finish one, then write the report")
    manifest = read_manifest(started / "manifest.csv", images)
    results = Results(plan, finished_runs(plan, manifest, folder), [])
    if not results.runs:
        raise RunError(f"{folder}: contains no finished run; finish one, then write the report")
    table = results_table(results)
    by_title = runs_by_title(results.runs)
    first = {title: runs[0] for title, runs in by_title.items()}  # of several seeds
    is_study = isinstance(plan, StudyPlan)
    charts: list[Block] = [*_curves(plan, results.runs)] if is_study and plan.study in CURVES else [*_bars(by_title)]
    sections = [
        Section("Scores", [TableBlock(table), *charts]),
        Section("Classes", [*([] if is_study else _roc(first)), *_training(first, folder)]),
        Section("Comparison", [_comparison(first, folder, manifest, plan.split, count, progress)]),
        Section("Data", [TableBlock(data_table(manifest))]),
        meaning_of_table(with_paper=any(job.printed for job in plan.jobs())),
    ]
    sections = [section for section in sections if section.blocks]
    summary = (
        f"{len(results.runs)} of {len(plan.jobs())} runs finished, evaluated on "
        f"{results.runs[0].evaluation['images']} {plan.split} images; "
        f"{duration(sum(run.seconds for run in results.runs))} of training."
    )
    kind = "Study" if is_study else "Benchmark"
    return Page(kind, f"{plan.name}: {folder.resolve().name}", summary, sections, _headlines(by_title))


def _headlines(by_title: dict[str, list[RunResult]]) -> list[Headline]:
    """The best row of each score, among those that are ranked."""
    headlines = []
    for score, name in (("f1_plus", "best F1+"), ("f1_minus", "best F1-"), ("pxap", "best PxAP")):
        means = {
            title: interval(values)[0]
            for title, runs in by_title.items()
            if runs[0].job.ranked and (values := _values(runs, score))
        }
        if means:
            best = max(means, key=means.__getitem__)
            headlines.append(Headline(name, f"{means[best]:.1f} %", beside=best))
    return headlines


def _bars(by_title: dict[str, list[RunResult]]) -> list[Bars]:
    """Measured scores of each row, beside the paper's where it has them."""
    charts = []
    for score, name in _BARS.items():
        series: dict[str, Sequence[float | None]] = {
            "measured": [interval(v)[0] if (v := _values(runs, score)) else None for runs in by_title.values()]
        }
        printed = [getattr(runs[0].job.printed, score, None) for runs in by_title.values()]
        if any(value is not None for value in printed):
            series["the paper's"] = printed
        charts.append(Bars(name, list(by_title), series, "row of the table", f"{name}, %", high=100, horizontal=True))
    return charts


def _curves(plan: StudyPlan, runs: list[RunResult]) -> list[Chart]:
    """Accuracy, F1+ and F1- over the values of the studied setting, one chart per form of the background term."""
    charts = []
    for kind in dict.fromkeys(run.job.kind for run in runs):
        own = runs_by_title([run for run in runs if run.job.kind == kind]).values()
        series = []
        for score, name in _CURVES.items():
            points = [
                (float(seeds[0].job.value or 0), 100 - mean if score == "error" else mean)
                for seeds in own
                if (values := _values(seeds, score))
                for mean in [interval(values)[0]]
            ]
            if points:
                series.append(Series(name, sorted(points)))
        x = Axis(plan.study, log=plan.study == "lambda")
        charts.append(Chart(f"{plan.study}, {(kind or '').upper()}", x, Axis("%", 0, 100), series))
    return charts


def _values(runs: list[RunResult], score: str) -> list[float]:
    return [run.evaluation[score] for run in runs if run.evaluation.get(score) is not None]


def _roc(runs: dict[str, RunResult]) -> list[Block]:
    classifying = {
        title: run.evaluation for title, run in runs.items() if "auc" in run.evaluation and run.job.shows_error
    }
    chart = roc_chart(classifying) if classifying else None
    return [chart] if chart else []


def _training(runs: dict[str, RunResult], folder: Path) -> list[Block]:
    """Validation accuracy of each row over epochs."""
    series = []
    for title, run in runs.items():
        records = read_metrics(run_folder(folder, run.job))
        points = [(float(r["epoch"]), 100 - r["valid"]["error"]) for r in records if "error" in r.get("valid", {})]
        if points:
            series.append(Series(title, points, dashed=len(series) >= COLOURS))
    if not series:
        return []
    axes = Axis("epoch", whole=True), Axis("validation accuracy, %", 0, 100)
    return [Chart("Accuracy while training", *axes, series)]


def _comparison(
    runs: dict[str, RunResult], folder: Path, manifest: Manifest, split: str, count: int, progress: Progress
) -> Gallery:
    """The same images with the errors of every row, as layers of one slider."""
    part = manifest.split(split)
    rows = evenly([row for row in part.rows if part.knows_mask(row)], count)
    drawn: dict[Row, dict[str, np.ndarray]] = {}
    scores: dict[Row, list[str]] = {}
    decoded = {}
    for row in rows:
        image = read_image(part.image_path(row))
        decoded[row] = image, true_mask(part, row, image.shape[:2])
        drawn[row] = {IMAGE: reduced(image)}
        scores[row] = []
    for title, run in progress.track(list(runs.items()), "drawing methods"):
        model = load(run_folder(folder, run.job))
        records: dict[str, Any] = {record["image"]: record for record in run.evaluation["per_image"]}
        for row, (image, truth) in decoded.items():
            prediction = model.predict(image)
            by_threshold = run.job.binarise == "threshold"
            mask = prediction.mask if by_threshold else prediction.mask_by_label(row.label)
            drawn[row][title] = layers_of(image, None, mask, truth)[ERRORS]
            dice = records[row.image].get("f1_plus")
            scores[row].append(f"{title} {'--' if dice is None else format(dice, '.1f')}")
    cards = [
        Card(
            Path(row.image).name,
            (layers[IMAGE].shape[1], layers[IMAGE].shape[0]),
            embed(layers),
            [f"true class: {row.label}", f"F1+: {' · '.join(scores[row])}"],
        )
        for row, layers in drawn.items()
    ]
    note = f"{len(cards)} images, evenly over the {split} split; the slider goes through the rows of the table."
    gallery = make_gallery(
        cards,
        note,
        start=max(runs, key=lambda title: (runs[title].job.ranked, runs[title].evaluation.get("f1_plus") or 0)),
    )
    return Gallery(gallery.cards, gallery.note, gallery.start, LEGEND[ERRORS])
