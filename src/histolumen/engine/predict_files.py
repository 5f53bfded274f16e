"""Prediction of image files into a folder: masks, overlays and one table."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from histolumen.atomic import remove_abandoned, short_name
from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.search import search_images
from histolumen.data.sources.folder import is_mask
from histolumen.engine.earlier import Ledger, Source
from histolumen.engine.model import Model, Prediction
from histolumen.errors import ConfigError, DataError, DiskError, HistolumenError
from histolumen.export.geojson import save_geojson
from histolumen.extras import require
from histolumen.locking import exclusive
from histolumen.progress import SILENT, Progress

_MAX_NAME_BYTES = 200  # of the name of an output file; disks allow 255 with suffix
_FOLDERS = ("soft_masks", "masks", "overlays", "geojson")
_SAVE_EVERY = 10.0  # seconds between two writes of the table, so that a killed call loses little


@dataclass(frozen=True)
class Input:
    """An image to predict and the name of its output files, without suffix; or an entry that cannot be read."""

    path: Path
    name: str
    problem: str = ""


@dataclass
class Report:
    """One record per predicted image and one error message per failed image."""

    records: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def find_images(inputs: Sequence[Path], out: Path | None = None) -> list[Input]:
    """List the images among files and folders (searched recursively), each with a unique output name.

    Masks, hidden files and earlier results in `out` are skipped. A folder that cannot be read is an input with a
    `problem`.
    """
    entries: list[tuple[Path, Path]] = []
    unread: list[Input] = []
    for entry in inputs:
        if entry.is_dir():
            search = search_images(entry)
            images = [path for path in search.images if not is_mask(path) and not _is_below(path, out)]
            unread += [Input(path, "", reason) for path, reason in search.left_out if not _is_below(path, out)]
            if not images:
                raise DataError(f"{entry}: contains no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
            entries += [(path, path.relative_to(entry)) for path in images]
        else:
            entries.append((entry, Path(entry.name)))
    taken: set[str] = set()
    return [*(Input(path, _unique_name(relative, taken)) for path, relative in entries), *unread]


def predict_files(
    model: Model,
    inputs: Sequence[Input],
    out: Path,
    *,
    geojson: bool = False,
    progress: Progress = SILENT,
) -> Report:
    """Predict every image. What cannot be read, predicted or written is reported, and the others are done.

    Images that the same model has predicted into `out` before are not repeated; the table keeps their rows. A folder
    with predictions of another model is refused.

    Args:
        model: a trained model.
        inputs: from `find_images`.
        out: output folder for `soft_masks/`, `masks/`, `overlays/`, `predictions.csv` and `predictions.json`.
        geojson: also write the regions of each mask as polygons to `geojson/`.
        progress: receives the number of images.
    """
    if geojson:
        require("slides", "contourpy", "shapely")
    with exclusive(out):
        for folder in _FOLDERS:
            remove_abandoned(out / folder, below=True)
        remove_abandoned(out)
        return _predict_files(model, inputs, Ledger(out, {"model": model.identity}), geojson, progress)


def _predict_files(model: Model, inputs: Sequence[Input], ledger: Ledger, geojson: bool, progress: Progress) -> Report:
    report = Report(failures=[f"{item.path}: {item.problem}" for item in inputs if item.problem])
    kinds = ("soft_mask", "mask", "overlay", *(("geojson",) if geojson else ()))
    saved: float | None = None
    try:
        for item in progress.track([item for item in inputs if not item.problem], "predicting"):
            record = ledger.current(item.path, kinds)
            if record is None:
                try:
                    name = ledger.name_for(item.path, item.name)
                    prediction = model.predict(item.path)
                    if saved is None:  # what a kill leaves in the folder is then known to be of this model
                        ledger.save(report.failures)
                        saved = time.monotonic()
                    record = _save(prediction, Input(item.path, name), ledger.out, geojson=geojson)
                    ledger.add(Source.of(item.path, name), record)
                except Exception as error:
                    if _concerns_all(error):
                        raise
                    report.failures.append(_message(error, item.path))
                    continue
            report.records.append(record)
            if saved is not None and time.monotonic() - saved > _SAVE_EVERY:
                ledger.save(report.failures)
                saved = time.monotonic()
    finally:  # also after a full disk or Ctrl-C: the table lists what is done
        if report.records:
            ledger.save(report.failures)
    return report


def _concerns_all(error: Exception) -> bool:
    """Whether every further image would fail for the same reason."""
    return isinstance(error, ConfigError) or (isinstance(error, DiskError) and error.whole_disk)


def _message(error: Exception, path: Path) -> str:
    """One line about an image that failed; damaged files raise anything in the libraries that read them."""
    if isinstance(error, HistolumenError):
        return str(error)
    reason = (str(error).strip().splitlines() or [""])[0]
    return f"{path}: {type(error).__name__}{': ' if reason else ''}{reason}; the image is left out"


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
    relative = Path(*(_plain_name(part) for part in relative.parts))
    stem, with_suffix = relative.with_suffix("").as_posix(), relative.as_posix().replace(".", "_")
    candidates = [stem, with_suffix, *(f"{with_suffix}_{number}" for number in range(2, len(taken) + 3))]
    name = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(name)
    return name


def _plain_name(part: str) -> str:
    """A file or folder name that every disk and file format takes: valid Unicode, and not too long."""
    text = os.fsencode(part).decode("utf-8", "backslashreplace").replace("\\", "_")
    suffix = Path(text).suffix if len(Path(text).suffix) <= len(".jpeg2000") else ""
    return short_name(text.removesuffix(suffix), _MAX_NAME_BYTES) + suffix
