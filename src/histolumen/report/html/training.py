"""What was trained on what: data, settings, versions, time and training curves of a run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from histolumen.config import RunConfig
from histolumen.data.manifest import SPLITS, Manifest
from histolumen.engine.checkpoint import ModelCard
from histolumen.methods.base import reads_masks
from histolumen.report.html.content import Axis, Chart, Series
from histolumen.report.html.origin import recipe_of
from histolumen.report.tables import Table

_SHOWN_PACKAGES = ("histolumen", "torch", "timm")
_SHORT = 12  # characters of a SHA-256 that tell models apart


def data_table(manifest: Manifest) -> Table:
    """Number of images per split and class."""
    classes = manifest.classes
    rows = []
    for split in SPLITS:
        own = manifest.split(split).rows
        if not own:
            continue
        counts = Counter(row.label for row in own)
        patients = len({row.patient for row in own if row.patient})
        masks = sum(bool(row.mask) for row in own)
        rows.append(
            [split, str(len(own)), *(str(counts[label]) for label in classes), str(masks), str(patients or "--")]
        )
    return Table("Images", ["split", "images", *classes, "with a mask", "patients"], rows)


def most_frequent_class(manifest: Manifest) -> str:
    """The class with the most training images."""
    counts = Counter(row.label for row in manifest.split("train").rows)
    return counts.most_common(1)[0][0]


def training_facts(
    run: Path, config: RunConfig, card: ModelCard, manifest: Manifest, records: list[dict[str, Any]]
) -> dict[str, str]:
    """Settings, versions and time of a run."""
    backbone, images, train = config.backbone, config.images, config.train
    start = {"none": "from scratch", "auto": "published weights"}.get(backbone.weights, Path(backbone.weights).name)
    resolution = f", {images.mpp:g} µm per pixel" if images.mpp else ""
    learned = (
        "labels and masks (full supervision)" if reads_masks(config.method.name) else "one label per image; no masks"
    )
    return {
        "Learned from": learned,
        "Recipe": recipe_of(config),
        "Method": config.method.name,
        "Backbone": f"{backbone.name}, {start}",
        "Input": f"short side {images.short_side or 'as it is'}, crops of {images.crop}{resolution}",
        "Optimiser": f"{train.optimizer}, learning rate {train.lr:g}, {train.schedule}, batches of {train.batch_size}",
        "Epochs": f"{len(records)} of {train.epochs}; kept: {card.epoch} (by {train.select})",
        "Seed": str(config.seed),
        "Training time": duration(sum(record["seconds"] for record in records)),
        **_environment(run),
        "Model": f"{card.identity[:_SHORT]}… (SHA-256 of weights, classes and settings)",
        "Data": f"{manifest.digest[:_SHORT]}… (SHA-256 of the manifest's rows)",
    }


def accuracy_chart(records: list[dict[str, Any]], best: int) -> Chart | None:
    """Accuracy on training and validation images over epochs; None for methods that do not classify."""
    series = []
    for part, label, dashed in (("train", "training", True), ("valid", "validation", False)):
        points = [(float(r["epoch"]), 100 - r[part]["error"]) for r in records if "error" in r.get(part, {})]
        if points:
            series.append(Series(label, points, dashed=dashed))
    if not series:
        return None
    note = f"Epoch {best} was kept."
    return Chart("Accuracy while training", epoch_axis(records), Axis("accuracy, %", 0, 100), series, note)


def foreground_chart(records: list[dict[str, Any]]) -> Chart | None:
    """Mean foreground share of the validation images over epochs; None without validation."""
    points = [(float(r["epoch"]), 100 * r["valid"]["foreground_share"]) for r in records if "valid" in r]
    if not points:
        return None
    note = "A mask that empties or fills the whole image no longer explains anything."
    y = Axis("mean foreground, % of the image", 0, 100)
    return Chart("Size of the masks while training", epoch_axis(records), y, [Series("validation", points)], note)


def epoch_axis(records: list[dict[str, Any]]) -> Axis:
    """The axis of all epochs."""
    return Axis("epoch", 1, max(len(records), 2), whole=True)


def loss_chart(records: list[dict[str, Any]]) -> Chart:
    """The loss and its weighted terms over epochs."""
    names = list(dict.fromkeys(name for record in records for name in record["loss"]))
    ordered = ["total", *(name for name in names if name != "total")]
    if len(names) == 2:  # the total is the only term
        ordered = ["total"]
    series = [
        Series(
            name, [(float(r["epoch"]), r["loss"][name]) for r in records if name in r["loss"]], dashed=name != "total"
        )
        for name in ordered
    ]
    note = "The terms are weighted; their sum is the total."
    return Chart("Training loss", epoch_axis(records), Axis("loss"), series, note if len(series) > 1 else "")


def duration(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _environment(run: Path) -> dict[str, str]:
    """Versions and hardware from env.json; empty if it cannot be read."""
    try:
        content = json.loads((run / "env.json").read_text(encoding="utf-8"))
        packages = content["packages"]
        versions = ", ".join(f"{name} {packages[name]}" for name in _SHOWN_PACKAGES if name in packages)
        hardware = ", ".join(content["gpus"]) or f"CPU, {content['cpu_threads']} threads"
        return {
            "Versions": f"{versions}, Python {content['python']}",
            "Computed on": f"{hardware}; {content['platform']}",
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
