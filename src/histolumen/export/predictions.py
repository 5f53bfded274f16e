"""A folder of predictions: masks, overlays and one table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from histolumen.data.folder import image_files, is_mask
from histolumen.data.image import IMAGE_SUFFIXES, read_image
from histolumen.data.transforms import refuse_narrow
from histolumen.engine.model import Model, Prediction
from histolumen.errors import DataError, ImageError
from histolumen.export.files import save_binary_mask, save_json, save_picture, save_soft_mask, save_table
from histolumen.export.geojson import save_geojson
from histolumen.export.overlay import draw_overlay
from histolumen.export.regions import Raster, find_regions
from histolumen.extras import require


@dataclass(frozen=True)
class Input:
    """An image to predict and the name (without ending) its results get."""

    path: Path
    name: str


@dataclass
class Report:
    """One record per image done, one sentence per image that could not be."""

    records: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def find_images(inputs: Sequence[Path], out: Path | None = None) -> list[Input]:
    """Images among files and folders (searched through); names are made unique by their folder or ending.

    Masks, hidden files and what an earlier prediction wrote to `out` are not taken for images.
    """
    found: list[tuple[Path, Path]] = []
    for entry in inputs:
        if entry.is_dir():
            images = [path for path in image_files(entry) if not is_mask(path) and not _below(path, out)]
            if not images:
                raise DataError(f"{entry}: no images in it ({', '.join(sorted(IMAGE_SUFFIXES))})")
            found += [(path, path.relative_to(entry)) for path in images]
        else:
            found.append((entry, Path(entry.name)))
    taken: set[str] = set()
    return [Input(path, _unique(relative, taken)) for path, relative in found]


def predict_files(
    model: Model,
    inputs: Sequence[Input],
    out: Path,
    track: Callable[[Sequence[Input]], Iterable[Input]] = lambda items: items,
    *,
    geojson: bool = False,
) -> Report:
    """Predict every image; those that cannot be read are reported and the others still done.

    Args:
        model: a trained model.
        inputs: from `find_images`.
        out: `soft_masks/`, `masks/`, `overlays/`, `predictions.csv` and `predictions.json` are written here.
        track: wraps the inputs to show progress.
        geojson: write `geojson/` too, the regions of each mask as polygons.
    """
    if geojson:
        require("slides", "contourpy", "shapely")
    report = Report()
    try:
        for item in track(inputs):
            try:
                pixels = read_image(item.path)
                refuse_narrow(pixels.shape, item.path)
                prediction = model.predict(pixels)
            except ImageError as error:
                report.failures.append(str(error))
                continue
            record = save_prediction(prediction, pixels, item, out)
            report.records.append(record | (save_regions(prediction, model, item, out) if geojson else {}))
    finally:  # a full disk or Ctrl-C half-way: what is done is listed
        if report.records:
            save_table(report.records, out / "predictions.csv")
            save_json({"images": report.records, "failures": report.failures}, out / "predictions.json")
    return report


def save_prediction(prediction: Prediction, pixels: np.ndarray, item: Input, out: Path) -> dict[str, Any]:
    """Write the masks and the overlay of one image; gives its record."""
    files = {folder: f"{folder}/{item.name}.png" for folder in ("soft_masks", "masks", "overlays")}
    save_soft_mask(prediction.soft_mask, out / files["soft_masks"])
    save_binary_mask(prediction.mask, out / files["masks"])
    probability = prediction.probabilities[prediction.label]
    caption = f"{prediction.label} {probability:.2f}   deciding area {100 * prediction.foreground_share:.0f} %"
    save_picture(draw_overlay(pixels, prediction.mask, caption), out / files["overlays"])
    return {
        "image": str(item.path),
        "prediction": prediction.label,
        "probability": round(probability, 6),
        **{f"p_{name}": round(value, 6) for name, value in prediction.probabilities.items()},
        "foreground_share": round(100 * prediction.foreground_share, 3),
        "soft_mask": files["soft_masks"],
        "mask": files["masks"],
        "overlay": files["overlays"],
    }


def save_regions(prediction: Prediction, model: Model, item: Input, out: Path) -> dict[str, Any]:
    """Write the regions of a mask as polygons in the pixels of their image; gives what that adds to its record."""
    regions = find_regions(Raster.of(prediction.soft_mask))
    label, file = prediction.label if model.classifies else "foreground", f"geojson/{item.name}.geojson"
    count = save_geojson(regions, out / file, label, [*model.classes, label], mpp=model.config.images.mpp)
    return {"regions": count, "geojson": file}


def _below(path: Path, folder: Path | None) -> bool:
    return folder is not None and folder.resolve() in path.resolve().parents


def _unique(relative: Path, taken: set[str]) -> str:
    stem, named = relative.with_suffix("").as_posix(), relative.as_posix().replace(".", "_")
    candidates = [stem, named, *(f"{named}_{number}" for number in range(2, len(taken) + 3))]
    name = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(name)
    return name
