"""The report of a run: what was trained on what, how well it does, and its masks."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from histolumen.config import parse_run_config, read_recipe
from histolumen.data.image import read_image
from histolumen.data.manifest import SPLITS, Manifest, read_manifest
from histolumen.engine.checkpoint import find_model, read_model_card
from histolumen.engine.evaluate import Evaluation, evaluate, true_mask
from histolumen.engine.model import load
from histolumen.engine.runlog import read_metrics
from histolumen.errors import DiskError, first_few
from histolumen.export.files import to_json
from histolumen.progress import SILENT, Progress
from histolumen.report.html.content import Block, Code, Facts, Headline, Page, Section, TableBlock, Text
from histolumen.report.html.gallery import CARDS, WorstFirst, first_shown
from histolumen.report.html.meaning import NOT_A_DEVICE, meaning_of_scores
from histolumen.report.html.measured import (
    class_matrix,
    histogram,
    pixel_matrix,
    reliability_chart,
    roc_chart,
    scores_table,
    sizes_chart,
    trivial_scores,
)
from histolumen.report.html.origin import PaperRow, paper_row
from histolumen.report.html.training import (
    accuracy_chart,
    data_table,
    duration,
    foreground_chart,
    loss_chart,
    most_frequent_class,
    training_facts,
)
from histolumen.report.runs.measured import store_evaluation, stored_evaluation

_HEADLINES = {
    "error": "classification error",
    "auc": "area under the ROC curve",
    "f1_plus": "F1+ foreground",
    "f1_minus": "F1- background",
    "pxap": "PxAP",
}
_SELECTED_BY_LABELS = ("accuracy", "cross_entropy", "pixel_cross_entropy")


def run_page(
    run: Path, split: str | None = None, images: Path | None = None, count: int = CARDS, progress: Progress = SILENT
) -> Page:
    """Evaluate a split, unless a stored evaluation is current, and describe the run.

    Args:
        run: the run folder.
        split: split to evaluate; None: the first of valid, test and train that has images.
        images: folder of the images, if they have moved.
        count: number of images in the gallery.
        progress: counts the evaluated images.
    """
    find_model(run)  # raises if no epoch is finished
    manifest = read_manifest(run / "manifest.csv", images)
    chosen = split or next(name for name in ("valid", "test", "train") if manifest.split(name).rows)
    worst = WorstFirst(count)
    return describe_run(run, manifest, measure_and_show(run, manifest, chosen, worst, progress), worst)


def page_after_training(run: Path, progress: Progress = SILENT) -> Page:
    """Describe a run that has just ended, with its validation images; test images are left for a later evaluation."""
    manifest, worst = read_manifest(run / "manifest.csv"), WorstFirst()
    if not manifest.split("valid").rows:
        return describe_run(run, manifest, None, worst)
    return describe_run(run, manifest, measure_and_show(run, manifest, "valid", worst, progress), worst)


def measure_and_show(
    run: Path, manifest: Manifest, split: str, worst: WorstFirst, progress: Progress = SILENT
) -> dict[str, Any]:
    """Evaluate the best model of a run and fill its gallery in the same pass.

    With a current stored evaluation, only the images of the gallery are predicted.
    """
    stored = stored_evaluation(run, manifest, split, "threshold")
    if stored is None:
        result = evaluate(load(run), manifest, split, worst.consider, progress=progress)
        if not result.failures:
            with suppress(DiskError):  # a run folder that is read-only
                return store_evaluation(result, run, manifest)
        return as_stored(result)
    model, part = load(run), manifest.split(split)
    shown = first_shown(stored, worst.count)
    for row in progress.track([row for row in part.rows if row.image in shown], "drawing"):
        image = read_image(part.image_path(row))
        worst.consider(row, model.predict(image), true_mask(part, row, image.shape[:2]))
    worst.total = stored["images"]
    return stored


def as_stored(result: Evaluation) -> dict[str, Any]:
    """An evaluation as it would be read from its file: undefined scores are None."""
    return json.loads(to_json(result.as_dict()))


def describe_run(
    run: Path, manifest: Manifest, evaluation: dict[str, Any] | None, worst: WorstFirst, title: str = ""
) -> Page:
    """The page of a run.

    Args:
        run: the run folder.
        manifest: its images.
        evaluation: of its model; None: only the training is described.
        worst: the images of the gallery.
        title: of the page; by default the name of the folder.
    """
    config = parse_run_config(read_recipe(str(run / "config.yaml")))
    card = read_model_card(find_model(run))
    records = read_metrics(run)
    facts = training_facts(run, config, card, manifest, records)
    counts = {name: len(manifest.split(name).rows) for name in SPLITS}
    summary = (
        f"{config.method.name} on {config.backbone.name}, trained on {counts['train']} images "
        f"({', '.join(manifest.classes)}) in {duration(sum(record['seconds'] for record in records))}"
    )
    charts: list[Block] = [
        chart
        for chart in (accuracy_chart(records, card.epoch), loss_chart(records), foreground_chart(records))
        if chart
    ]
    training = [
        Section("Data", [TableBlock(data_table(manifest))]),
        Section("Training", [Facts(facts), *(charts if records else [])]),
    ]
    recipe = Section("All settings", [Code(config.as_yaml(), "config.yaml")])
    name = title or run.resolve().name
    if evaluation is None:
        note = "This run has no validation images, so nothing was evaluated. histolumen report RUN --split test does."
        sections = [*training, Section("Evaluation", [Text([note, NOT_A_DEVICE])]), recipe]
        return Page("Training run", name, f"{summary}.", sections)
    paper = paper_row(config, manifest)
    trivial = trivial_scores(evaluation, most_frequent_class(manifest))
    chosen_on = "valid" if config.train.select in _SELECTED_BY_LABELS and counts["valid"] else None
    gallery = worst.gallery()
    sections = [
        Section("Scores", [TableBlock(scores_table(evaluation, trivial, *_paper(paper, evaluation, manifest)))]),
        *_quality(evaluation),
        *([Section("Gallery", [gallery])] if gallery else []),
        *training,
        meaning_of_scores(evaluation, trivial, chosen_on),
        *_left_out(evaluation),
        recipe,
    ]
    summary += f"; evaluated on {evaluation['images']} {evaluation['split']} images."
    return Page("Training run", name, summary, sections, _headlines(evaluation, trivial))


def _quality(evaluation: dict[str, Any]) -> list[Section]:
    """Classes and masks of the evaluated images."""
    sections = []
    if "error" in evaluation:
        charts = [class_matrix(evaluation), roc_chart({"": evaluation}), reliability_chart(evaluation)]
        sections.append(Section("Classes", [chart for chart in charts if chart]))
    masks: list[Block] = [block for block in (pixel_matrix(evaluation), sizes_chart(evaluation)) if block]
    if not masks:
        by_class: dict[str, list[float]] = {}
        for image in evaluation["per_image"]:
            by_class.setdefault(image["label"], []).append(image["foreground_share"])
        title, note = "Size of the masks", "There are no true masks to compare them with."
        masks = [histogram(title, by_class, "predicted foreground, % of the image", "images", note)]
    return [*sections, Section("Masks", masks)]


def _paper(paper: PaperRow | None, evaluation: dict[str, Any], manifest: Manifest) -> tuple[Any, list[str]]:
    """The paper's scores, and the notes below the table."""
    trivial = "Trivial answer: every pixel is foreground (All-ones)"
    if "error" in evaluation:
        trivial += f"; every image is {most_frequent_class(manifest)}, the most frequent class in training"
    notes = [f"{trivial}. Masks are binarised at 0.5, without any label; intervals by bootstrap over images."]
    if evaluation.get("images_taken_as_empty"):
        notes.append(f"{evaluation['images_taken_as_empty']} images of a class without masks have an empty true mask.")
    if paper is None:
        return None, notes
    here = "" if evaluation["split"] == "test" else f", while this table is about the {evaluation['split']} split"
    notes.append(
        f"The paper's: printed in the paper for {paper.row.title} on the test set of {paper.benchmark}, with its own "
        f"backbone and schedule{here}; not measured here."
    )
    return paper.printed, notes


def _headlines(evaluation: dict[str, Any], trivial: dict[str, float]) -> list[Headline]:
    headlines = []
    for name, title in _HEADLINES.items():
        if evaluation.get(name) is None:
            continue
        low, high = evaluation["interval_95"][name]
        interval = "" if low is None else f"{low:.1f} – {high:.1f}"
        beside = f"trivial: {trivial[name]:.1f}" if name in trivial else ""
        headlines.append(Headline(title, f"{evaluation[name]:.1f} %", interval, beside))
    return headlines


def _left_out(evaluation: dict[str, Any]) -> list[Section]:
    failures = evaluation.get("failures")
    return [Section("Left out", [Text(first_few(failures), listed=True)])] if failures else []
