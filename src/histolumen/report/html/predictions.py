"""The report of the output folder of `predict`: all answers, their distribution, and the least certain first."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from histolumen.data.image import FORMATS, read_image
from histolumen.data.manifest import read_csv
from histolumen.errors import HistolumenError, ImageError, RunError, first_few
from histolumen.progress import SILENT, Progress
from histolumen.report.html.content import Block, Card, Headline, Page, Section, TableBlock, Text
from histolumen.report.html.gallery import CARDS, counted, make_gallery, verdict_of
from histolumen.report.html.meaning import meaning_of_predictions
from histolumen.report.html.measured import histogram
from histolumen.report.html.pictures import OUTLINE, embed, layers_of, reduced
from histolumen.report.tables import Table

TABLE, STATE = "predictions.csv", "predictions.json"
_MOST_ROWS = 500  # of the table; the CSV has all
_SHARES = ("foreground_share", "tissue_share")
_FILES = ("soft_mask", "mask", "overlay", "heatmap", "geojson")  # columns that name files
_UNSURE = 0.8  # probability below which an answer is counted as unsure


def predictions_page(folder: Path, images: Path | None = None, count: int = CARDS, progress: Progress = SILENT) -> Page:
    """Describe the predictions in a folder. Columns are read by name; unknown ones are shown as they are.

    Args:
        folder: output folder of `predict`.
        images: folder of the images, if they have moved.
        count: number of images in the gallery.
        progress: counts the images that are drawn.
    """
    _, by_line = read_csv(folder / TABLE)
    records = sorted(by_line.values(), key=_probability)
    if not records or "image" not in records[0] or "prediction" not in records[0]:
        raise RunError(f"{folder / TABLE}: is not a table that `histolumen predict` wrote; give its output folder")
    state = _state(folder)
    pairs = zip(state.get("images", []), state.get("sources", []), strict=False)
    by_image = {record.get("image", ""): Path(source.get("path", "")) for record, source in pairs}
    cards = [
        card
        for record in progress.track(records[:count], "drawing")
        if (card := _card(record, folder, _find(record["image"], by_image, images)))
    ]
    counts = Counter(record["prediction"] for record in records)
    answers = ", ".join(f"{number} {label}" for label, number in counts.most_common())
    unsure = sum(_probability(record) < _UNSURE for record in records)
    headlines = [Headline("images", f"{len(records)}")]
    headlines += [
        Headline(label, f"{number}", beside=f"{100 * number / len(records):.0f} %")
        for label, number in counts.most_common(3)
    ]
    headlines.append(
        Headline(f"unsure (below {_UNSURE:.2f})", f"{unsure}", beside=f"{100 * unsure / len(records):.0f} %")
    )
    note = f"{len(cards)} of {len(records)} images, least certain first."
    gallery: list[Block] = [make_gallery(cards, note)] if cards else [Text(["None of the images could be read again."])]
    failures = [str(failure) for failure in state.get("failures", [])]
    sections = [
        Section("Distribution", _distributions(records)),
        Section("Gallery", gallery),
        Section("Table", [TableBlock(_table(records))]),
        *([Section("Left out", [Text(first_few(failures), listed=True)])] if failures else []),
        meaning_of_predictions(),
    ]
    return Page(
        "Predictions", folder.resolve().name, f"{counted(len(records), 'image')}: {answers}.", sections, headlines
    )


def _distributions(records: list[dict[str, str]]) -> list[Block]:
    """Probabilities of the predicted class, and foreground shares, by class."""
    charts: list[Block] = []
    for column, title, x_title in (
        ("probability", "Probability of the answer", "probability, %"),
        ("foreground_share", "Size of the deciding area", "foreground, % of the image"),
    ):
        values: dict[str, list[float]] = {}
        for record in records:
            if (value := _number(record.get(column, ""))) is not None:
                values.setdefault(record["prediction"], []).append(min(max(value, 0.0), 1.0))
        if values:
            charts.append(histogram(title, values, x_title, "images"))
    return charts


def _table(records: list[dict[str, str]]) -> Table:
    columns = [name for name in records[0] if name not in _FILES and any(record.get(name) for record in records)]
    rows = [[_shown(record, name) for name in columns] for record in records[:_MOST_ROWS]]
    more = len(records) - len(rows)
    notes = ["Least certain first. Shares are of the image."] + ([f"{more:,} more are in {TABLE}."] if more > 0 else [])
    return Table("Predictions", [name.replace("_", " ") for name in columns], rows, notes)


def _shown(record: dict[str, str], column: str) -> str:
    value = record.get(column, "")
    if column == "image":
        return Path(value).name
    number = _number(value)
    if number is None:
        return value
    return f"{100 * number:.1f} %" if column in _SHARES else f"{number:.4g}"


def _card(record: dict[str, str], folder: Path, image: Path | None) -> Card | None:
    """The card of an image; None if neither the image nor its overlay can be read."""
    try:
        layers = _layers(record, folder, image)
    except (HistolumenError, OSError, ValueError):
        return None
    height, width = next(iter(layers.values())).shape[:2]
    share = _number(record.get("foreground_share", ""))
    caption = [] if share is None else [f"deciding area {100 * share:.0f} %"]
    probabilities = {name[2:]: _number(record[name]) or 0.0 for name in record if name.startswith("p_")}
    if len(probabilities) > 2:  # of two, the verdict tells both
        caption.append("  ".join(f"{name} {value:.2f}" for name, value in probabilities.items()))
    return Card(
        Path(record["image"]).name,
        (width, height),
        embed(layers),
        caption,
        verdict_of(record["prediction"], _probability(record)),
    )


def _layers(record: dict[str, str], folder: Path, image: Path | None) -> dict[str, np.ndarray]:
    if image is None:  # moved or deleted: the overlay still shows it
        overlay = record.get("overlay")
        if not overlay:
            raise ImageError(f"{record['image']}: no such file")
        return {OUTLINE: reduced(read_image(folder / overlay))}
    pixels = read_image(image)
    soft = _grey(folder, record.get("soft_mask", ""))
    mask = _grey(folder, record.get("mask", ""))
    if mask is None and soft is not None:
        mask = soft
    return layers_of(pixels, soft, None if mask is None else mask >= 0.5)


def _grey(folder: Path, name: str) -> np.ndarray | None:
    """A soft or binary mask [H, W] in [0, 1] from its PNG; None if there is no such file."""
    if not name or not (folder / name).is_file():
        return None
    with Image.open(folder / name, formats=FORMATS) as file:
        values = np.asarray(file)
    return values.astype(np.float32) / (65535 if values.dtype != np.uint8 else 255)


def _find(name: str, by_image: dict[str, Path], images: Path | None) -> Path | None:
    """Where an image is: in `images`, where it was when it was predicted, or as its row names it."""
    places = [*([images / Path(name).name, images / name] if images else []), by_image.get(name), Path(name)]
    return next((place for place in places if place is not None and place.is_file()), None)


def _state(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _probability(record: dict[str, str]) -> float:
    return _number(record.get("probability", "")) or 0.0


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
