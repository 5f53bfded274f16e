"""Prediction of image files into a folder: masks, overlays and one table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.sources.folder import image_files, is_mask
from histolumen.engine.model import Model, Prediction
from histolumen.errors import DataError, ImageError
from histolumen.export.files import save_json, save_table
from histolumen.export.geojson import save_geojson
from histolumen.extras import require
from histolumen.progress import SILENT, Progress


@dataclass(frozen=True)
class Input:
    """An image to predict and the name of its output files, without suffix."""

    path: Path
    name: str


@dataclass
class Report:
    """One record per predicted image and one error message per failed image."""

    records: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def find_images(inputs: Sequence[Path], out: Path | None = None) -> list[Input]:
    """List the images among files and folders (searched recursively), each with a unique output name.

    Masks, hidden files and earlier results in `out` are skipped.
    """
    entries: list[tuple[Path, Path]] = []
    for entry in inputs:
        if entry.is_dir():
            images = [path for path in image_files(entry) if not is_mask(path) and not _is_below(path, out)]
            if not images:
                raise DataError(f"{entry}: contains no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
            entries += [(path, path.relative_to(entry)) for path in images]
        else:
            entries.append((entry, Path(entry.name)))
    taken: set[str] = set()
    return [Input(path, _unique_name(relative, taken)) for path, relative in entries]


def predict_files(
    model: Model,
    inputs: Sequence[Input],
    out: Path,
    *,
    geojson: bool = False,
    progress: Progress = SILENT,
) -> Report:
    """Predict every image. Images that cannot be read are reported and skipped.

    Args:
        model: a trained model.
        inputs: from `find_images`.
        out: output folder for `soft_masks/`, `masks/`, `overlays/`, `predictions.csv` and `predictions.json`.
        geojson: also write the regions of each mask as polygons to `geojson/`.
        progress: receives the number of images.
    """
    if geojson:
        require("slides", "contourpy", "shapely")
    report = Report()
    try:
        for item in progress.track(inputs, "predicting"):
            try:
                prediction = model.predict(item.path)
            except ImageError as error:
                report.failures.append(str(error))
                continue
            report.records.append(_save(prediction, item, out, geojson=geojson))
    finally:  # also after a full disk or Ctrl-C: the table lists what is done
        if report.records:
            save_table(report.records, out / "predictions.csv")
            save_json({"images": report.records, "failures": report.failures}, out / "predictions.json")
    return report


def _save(prediction: Prediction, item: Input, out: Path, *, geojson: bool) -> dict[str, Any]:
    """Write the files of one image and return its row of the table."""
    record = {"image": str(item.path), **prediction.save(out, item.name)}
    if geojson:
        file = f"geojson/{item.name}.geojson"
        record |= {"regions": save_geojson(prediction.regions(), out / file, prediction.geojson_style())}
        record |= {"geojson": file}
    return record


def _is_below(path: Path, folder: Path | None) -> bool:
    return folder is not None and folder.resolve() in path.resolve().parents


def _unique_name(relative: Path, taken: set[str]) -> str:
    stem, with_suffix = relative.with_suffix("").as_posix(), relative.as_posix().replace(".", "_")
    candidates = [stem, with_suffix, *(f"{with_suffix}_{number}" for number in range(2, len(taken) + 3))]
    name = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(name)
    return name
