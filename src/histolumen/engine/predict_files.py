"""Prediction of image files into a folder: masks, pictures and one table."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from histolumen.atomic import remove_abandoned, short_name
from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.search import search_images
from histolumen.data.sources.folder import is_mask
from histolumen.engine.earlier import KINDS, Ledger, Source
from histolumen.engine.pipeline import Answer, InOrder, Predictions
from histolumen.engine.prediction import THRESHOLD, Prediction, Predictor, checked_threshold
from histolumen.errors import ConfigError, DataError, DiskError, HistolumenError
from histolumen.export.geojson import save_geojson
from histolumen.extras import require
from histolumen.locking import exclusive
from histolumen.progress import SILENT, Progress
from histolumen.slides.reader import SLIDE_SUFFIXES

_MAX_NAME_BYTES = 200  # of the name of an output file; disks allow 255 with suffix
_FOLDERS = ("soft_masks", "masks", "overlays", "heatmaps", "geojson")
_SAVE_EVERY = 10.0  # seconds between two writes of the table, so that a killed call loses little
_SLIDE_ONLY = SLIDE_SUFFIXES - IMAGE_SUFFIXES


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

    Masks, hidden files and earlier results in `out` are skipped. A folder that cannot be read and a whole slide are
    inputs with a `problem`.
    """
    entries: list[tuple[Path, Path]] = []
    unread: list[Input] = []
    for entry in inputs:
        if entry.is_dir():
            search = search_images(entry)
            images = [path for path in search.images if not is_mask(path) and not _is_below(path, out)]
            unread += [Input(path, "", reason) for path, reason in search.left_out if not _is_below(path, out)]
            slides = [path for path in search.slides if not _is_below(path, out)]
            unread += [Input(path, "", _use_slide(path)) for path in slides]
            if not images and slides:
                raise DataError(f"{entry}: contains whole slides and no images; {_slide_command(entry)}")
            if not images:
                raise DataError(f"{entry}: contains no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
            entries += [(path, path.relative_to(entry)) for path in images]
        elif entry.suffix.lower() in _SLIDE_ONLY and entry.exists():
            unread.append(Input(entry, "", _use_slide(entry)))
        else:
            entries.append((entry, Path(entry.name)))
    taken: set[str] = set()
    return [*(Input(path, _unique_name(relative, taken)) for path, relative in entries), *unread]


def predict_files(
    model: Predictor,
    inputs: Sequence[Input],
    out: Path,
    *,
    threshold: float = THRESHOLD,
    overlay: bool = True,
    caption: bool = False,
    heatmap: bool = False,
    geojson: bool = False,
    progress: Progress = SILENT,
) -> Report:
    """Predict every image. What cannot be read, predicted or written is reported, and the others are done.

    Images that the same model has predicted into `out` before are not repeated; the table keeps their rows. A folder
    with predictions of another model, at another threshold or with other captions is refused.

    Args:
        model: a trained or an exported model.
        inputs: from `find_images`.
        out: output folder for `soft_masks/`, `masks/`, `overlays/`, `predictions.csv` and `predictions.json`.
        threshold: pixels of the soft mask from this value on are foreground.
        overlay: write overlays.
        caption: write a caption below each overlay.
        heatmap: also write the soft masks in colours to `heatmaps/`.
        geojson: also write the regions of each mask as polygons to `geojson/`.
        progress: receives the number of images.
    """
    if geojson:
        require("slides", "contourpy", "shapely")
    made_with = {"model": model.identity, "threshold": checked_threshold(threshold), "caption": caption}
    wanted = {"overlay": overlay, "heatmap": heatmap, "geojson": geojson}
    kinds = tuple(kind for kind in KINDS if wanted.get(kind, True))
    with exclusive(out):
        for folder in _FOLDERS:
            remove_abandoned(out / folder, below=True)
        remove_abandoned(out)
        return _predict_files(model, inputs, Ledger(out, made_with), kinds, progress)


def _predict_files(
    model: Predictor, inputs: Sequence[Input], ledger: Ledger, kinds: tuple[str, ...], progress: Progress
) -> Report:
    report = Report(failures=[f"{item.path}: {item.problem}" for item in inputs if item.problem])
    saved: float | None = None

    def save(name: str, item: Input, answer: Answer) -> tuple[Source, dict[str, Any]]:
        record = _save(answer(), Input(item.path, name), ledger, kinds)
        return Source.of(item.path, name), record

    def settle(item: Input, outcome: Callable[[], tuple[Source | None, dict[str, Any]]]) -> None:
        nonlocal saved
        try:
            source, record = outcome()
        except Exception as error:
            if _concerns_all(error):
                raise
            report.failures.append(_message(error, item.path))
            return
        if source is not None:
            ledger.add(source, record)
        report.records.append(record)
        if saved is not None and time.monotonic() - saved > _SAVE_EVERY:
            ledger.save(report.failures)
            saved = time.monotonic()

    todo = [item for item in inputs if not item.problem]
    upcoming = [item.path for item in todo if ledger.current(item.path, kinds) is None]
    try:
        with Predictions(model, upcoming) as predictions, InOrder(settle) as results:
            for item in progress.track(todo, "predicting"):
                if results.waits_for(lambda waiting, path=item.path: waiting.path == path):  # a file given twice
                    results.finish()
                if (record := ledger.current(item.path, kinds)) is not None:
                    results.add_outcome(item, (None, record))
                    continue
                try:
                    name = ledger.name_for(item.path, item.name)
                    answer = predictions.of(item.path)
                    if saved is None:  # what a kill leaves in the folder is then known to be of this model
                        ledger.save(report.failures)
                        saved = time.monotonic()
                except Exception as error:  # noqa: BLE001 - damaged files raise anything; settled in its turn
                    results.add_error(item, error)
                else:
                    results.add(item, partial(save, name, item, answer))
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


def _save(prediction: Prediction, item: Input, ledger: Ledger, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Write the files of one image, and those it has from an earlier call again; return its row of the table."""
    wanted = ledger.earlier_kinds(item.path).union(kinds)
    prediction = prediction.at(ledger.made_with["threshold"])
    pictures = {"overlay": "overlay" in wanted, "heatmap": "heatmap" in wanted, "caption": ledger.made_with["caption"]}
    record = {"image": str(item.path), **prediction.save(ledger.out, item.name, **pictures)}
    if "geojson" in wanted:
        file = f"geojson/{item.name}.geojson"
        regions = save_geojson(prediction.regions(), ledger.out / file, prediction.geojson_style())
        record |= {"regions": regions}
        record |= {"geojson": file}
    return record


def _use_slide(path: Path) -> str:
    return f"a whole slide; {_slide_command(path)}"


def _slide_command(path: Path) -> str:
    return f"predict it with `histolumen slide RUN {path} --out FOLDER`"


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
