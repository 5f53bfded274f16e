"""Predictions of items by the loaded runs: computed by the worker, masks cached, results kept."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from histolumen.engine.memory import FreedMemory
from histolumen.engine.model import Model, load
from histolumen.engine.region_probabilities import RegionProbabilities, region_probabilities
from histolumen.engine.slides.prediction import CERTAIN, SlidePrediction
from histolumen.errors import HistolumenError
from histolumen.export.geojson import GeoJsonStyle
from histolumen.export.regions import FoundRegion, Raster, find_regions
from histolumen.view.cache import BoundedCache
from histolumen.view.items import Item, Library, named
from histolumen.view.settings import ViewSettings
from histolumen.view.tiles import Tiles
from histolumen.view.worker import Job, Worker

_log = logging.getLogger(__name__)


class PredictionFailedError(HistolumenError):
    """A prediction ended with an error that the software did not foresee."""


@contextmanager
def unforeseen_errors(name: str) -> Iterator[None]:
    """Log errors that are no `HistolumenError`, and raise them as one."""
    try:
        yield
    except HistolumenError:
        raise
    except Exception as error:
        _log.exception("a prediction failed")
        raise PredictionFailedError(f"{name}: could not be predicted ({type(error).__name__})") from error


@dataclass(frozen=True)
class LoadedRun:
    """A model under the identifier that requests use."""

    id: str
    name: str
    model: Model

    @property
    def mean_colour(self) -> list[int]:
        """RGB colour of masked pixels in X+ and X-: the mean of the network's input."""
        return [round(255 * value) for value in self.model.method.backbone.mean.flatten().tolist()]


def load_runs(folders: list[Path]) -> list[LoadedRun]:
    """Load each run; the names of two runs differ even if their folders are called the same."""
    names = [folder.absolute().name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{folder.absolute().parent.name}/{folder.absolute().name}" for folder in folders]
    return [LoadedRun(str(number), names[number], load(folder)) for number, folder in enumerate(folders)]


@dataclass(frozen=True)
class Result:
    """What a run predicts for an item, without its mask."""

    record: dict[str, Any]
    """The row of `predictions.csv` or `slides.csv`."""
    label: str
    """The predicted class, or "no tissue"; empty for methods that predict a mask only."""
    probabilities: dict[str, float]
    regions: RegionProbabilities | None = None
    unlike_training: float | None = None
    """Distance from the training images relative to the limit; None: not known."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SoftMask:
    """A soft mask [h, w] in values from 0 to `top`, and how its regions are written as GeoJSON."""

    values: np.ndarray
    top: float
    style: GeoJsonStyle
    unlike: Callable[[FoundRegion], float | None] = lambda _: None
    """How unlike the training images a region is."""

    def binary(self, threshold: float) -> np.ndarray:
        """[h, w] bool."""
        return self.values >= threshold * self.top

    def as_bytes(self) -> np.ndarray:
        """[h, w] uint8, 255 is 1."""
        return (self.values * (255 / self.top)).round().clip(0, 255).astype(np.uint8)

    def regions(self, threshold: float) -> list[FoundRegion]:
        """Connected regions at a threshold, largest first. Needs contourpy and shapely."""
        height, width = self.values.shape

        def read(left: int, top: int, across: int, down: int) -> np.ndarray:
            return self.values[top : top + down, left : left + across]

        found = find_regions(Raster(width, height, read, threshold * self.top, self.top))
        return [replace(region, unlike=self.unlike(region)) for region in found]


class Predictor:
    """Predictions of all items by all runs.

    Results are small and kept for every item; masks are cached, and predicted again when they have been dropped. Images
    are predicted in the background, slides only on request.
    """

    def __init__(self, runs: list[LoadedRun], library: Library, tiles: Tiles, settings: ViewSettings):
        self.runs = {run.id: run for run in runs}
        self._library, self._tiles, self._slides = library, tiles, settings.slides
        self._results: dict[tuple[str, str], Result] = {}
        self._failures: dict[tuple[str, str], str] = {}
        self._masks: BoundedCache[SoftMask] = BoundedCache(settings.cache_bytes, lambda mask: mask.values.nbytes)
        self._jobs: dict[tuple[str, str], Job] = {}
        self._lock = threading.Lock()
        self.worker = Worker(settings.queue, self._predict_next)
        self._freed = FreedMemory()

    def result(self, item: Item, run: LoadedRun) -> Result | None:
        """The prediction, if it is known."""
        return self._results.get((item.id, run.id))

    def failure(self, item: Item, run: LoadedRun) -> str | None:
        """Why the item could not be predicted."""
        return self._failures.get((item.id, run.id))

    def mask(self, item: Item, run: LoadedRun) -> SoftMask | None:
        """The soft mask, if it is in memory."""
        return self._masks.get((item.id, run.id))

    def request(self, item: Item, run: LoadedRun, owner: str = "") -> Job | None:
        """Queue the prediction, unless result and mask are there or it is queued already; returns its job."""
        key = item.id, run.id
        with self._lock:
            if key in self._results and self._masks.get(key) is not None:
                return None
            if key not in self._jobs:
                self._jobs[key] = self.worker.submit(lambda job: self._predict(item, run, job), owner)
            return self._jobs[key]

    def retry(self, item: Item) -> None:
        """Forget that predictions failed, and what is known about the file: it may have been replaced."""
        failures = [self._failures.pop((item.id, run), None) for run in self.runs]
        if any(failures):
            self._tiles.forget(item)
            self.worker.wake()  # the other runs predict it in the background

    def counts(self) -> tuple[int, int]:
        """Number of predicted images, and of all images that are predicted without being asked for."""
        images = [item for item in self._library.all() if item.kind == "image"]
        keys = {(item.id, run) for item in images for run in self.runs}
        return len(keys & (self._results.keys() | self._failures.keys())), len(keys)

    def forget(self, item: Item) -> None:
        """Release everything about an upload."""
        for run in self.runs:
            self._results.pop((item.id, run), None)
            self._failures.pop((item.id, run), None)
            self._masks.remove((item.id, run))

    def _predict(self, item: Item, run: LoadedRun, job: Job) -> Result:
        key = item.id, run.id
        try:
            known = self._results.get(key)
            if known is not None and self._masks.get(key) is not None:  # predicted in the background meanwhile
                return known
            with unforeseen_errors(item.name):
                if item.kind == "slide":
                    with named(item):
                        result, mask = _of_slide(run.model.predict_slide(item.path, self._slides, job))
                else:
                    result, mask = self._of_image(item, run)
        except HistolumenError as error:
            self._failures[key] = str(error)
            raise
        else:
            self._failures.pop(key, None)
            self._masks.put(key, mask)
            self._results[key] = result
            return result
        finally:
            if self._library.get(item.id) is None:  # an upload that has made room for others in the meantime
                self.forget(item)
            with self._lock:
                if self._jobs.get(key) is job:  # not the job of a request that came during background work
                    del self._jobs[key]

    def _of_image(self, item: Item, run: LoadedRun) -> tuple[Result, SoftMask]:
        with named(item):
            prediction = run.model.predict(self._tiles.pixels(item))
        self._freed.after_prediction()
        classifies = prediction.classifies
        regions = region_probabilities(run.model, prediction) if classifies else None
        label = prediction.label if classifies else ""
        doubts = prediction.unlike_training, prediction.warnings
        result = Result(prediction.record(), label, prediction.probabilities, regions, *doubts)
        style, unlike = replace(prediction.geojson_style(), name=item.path.stem), prediction.unlike_training
        return result, SoftMask(prediction.soft_mask, 1.0, style, lambda _: unlike)

    def _predict_next(self) -> bool:
        """Predict one more image; False if none is left."""
        for run in self.runs.values():
            for item in self._library.all():
                key = item.id, run.id
                if item.kind == "image" and key not in self._results and key not in self._failures:
                    with suppress(HistolumenError):  # kept as its failure
                        self._predict(item, run, Job(lambda _: None))
                    return True
        return False


def _of_slide(prediction: SlidePrediction) -> tuple[Result, SoftMask]:
    doubts = prediction.unlike_training, prediction.warnings
    result = Result(prediction.record(), prediction.label, prediction.probabilities, None, *doubts)
    style, fields, scale = (
        prediction.geojson_style(prediction.slide.stem),
        prediction.fields,
        prediction.pixels_per_cell,
    )
    unlike = (lambda _: None) if fields is None else (lambda region: fields.around(region, scale))
    return result, SoftMask(prediction.heat, CERTAIN, style, unlike)
