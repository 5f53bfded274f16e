"""Prediction of many slides: each slide succeeds or fails independently; one table lists all."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from histolumen.atomic import remove_abandoned
from histolumen.engine.checkpoint import find_model, model_digest
from histolumen.engine.model import Model, load
from histolumen.engine.slides.predict import SlideSettings, save_slide_prediction
from histolumen.engine.slides.prediction import OUTPUTS
from histolumen.errors import ConfigError, DiskError, HistolumenError, SlideError
from histolumen.export.files import read_json, save_json, save_table
from histolumen.locking import exclusive
from histolumen.progress import SILENT, Progress
from histolumen.slides.reader import find_slides

_STATE = "state.json"
_one_at_a_time = threading.Lock()  # threads of a worker share one model and its memory


@dataclass(frozen=True)
class SlideJob:
    """A slide to predict; contains everything that a worker on another machine needs."""

    slide: Path
    folder: Path
    run: Path
    settings: SlideSettings


@dataclass(frozen=True)
class SlideState:
    """The state of a slide. `made_with` identifies the inputs, so that a later run can tell whether it is current."""

    slide: str
    state: Literal["done", "failed"]
    why: str = ""
    seconds: float = 0.0
    record: dict[str, Any] = field(default_factory=dict)
    made_with: str = ""


def plan_jobs(
    run: Path, inputs: Sequence[Path], out: Path, settings: SlideSettings
) -> tuple[list[SlideJob], list[SlideState]]:
    """Return one job per slide, and a failed state for each slide whose name is not unique.

    Slides that share a name cannot share an output folder.
    """
    slides = list(dict.fromkeys(path.absolute() for path in find_slides(list(inputs))))
    if not slides:
        raise SlideError(f"{inputs[0]}: contains no slides")
    count = Counter(path.stem for path in slides)
    advice = "rename them or use another --out for each"
    repeated = [
        SlideState(str(path), "failed", f"{path}: {count[path.stem]} slides are called {path.stem}; {advice}")
        for path in slides
        if count[path.stem] > 1
    ]
    run = find_model(run).absolute()
    out = out.absolute()
    return [SlideJob(path, out / path.stem, run, settings) for path in slides if count[path.stem] == 1], repeated


def do_slides(jobs: Iterable[SlideJob], progress: Progress = SILENT) -> Iterator[SlideState]:
    """Predict slides one by one in this process; slides that the same model has predicted before are skipped."""
    for job in jobs:
        yield do_slide(job, progress)


def do_slide(job: SlideJob, progress: Progress = SILENT) -> SlideState:
    """Predict one slide and save its state; an error becomes a failed state, so that other slides continue.

    A slide that another process is predicting is waited for, and then done already.
    """
    try:
        with _one_at_a_time, exclusive(job.folder, wait=progress.message):
            remove_abandoned(job.folder)
            return _do_slide(job, progress)
    except DiskError as error:
        if error.whole_disk:
            raise
        return SlideState(str(job.slide), "failed", str(error))


def _do_slide(job: SlideJob, progress: Progress) -> SlideState:
    started, made_with = time.perf_counter(), ""
    try:
        made_with = _made_with(job)
        if earlier := _done_before(job, made_with):
            return earlier
        model = _model(job.run, model_digest(job.run))
        record = save_slide_prediction(model, job.slide, job.folder, job.settings, progress)
        state = SlideState(str(job.slide), "done", record=record, made_with=made_with)
    except ConfigError:  # concerns every slide
        raise
    except HistolumenError as error:
        if isinstance(error, DiskError) and error.whole_disk:
            raise
        state = SlideState(str(job.slide), "failed", str(error))
    except Exception as error:  # noqa: BLE001 - damaged files raise anything in the libraries that read them
        state = SlideState(str(job.slide), "failed", f"{job.slide}: {type(error).__name__}: {error}")
    state = replace(state, seconds=round(time.perf_counter() - started, 2))
    if state.state == "failed" and (by_other := _done_before(job, made_with)):
        return by_other  # a worker that was believed lost has finished the slide and removed the work folder
    try:
        save_json(asdict(state), job.folder / _STATE)
    except HistolumenError as error:  # the state cannot be saved
        if isinstance(error, DiskError) and error.whole_disk:
            raise
        state = SlideState(str(job.slide), "failed", state.why or str(error), state.seconds)
    return state


def _made_with(job: SlideJob) -> str:
    """Identify everything that the prediction depends on: weights, slide file and settings."""
    if not job.slide.is_file():
        raise SlideError(f"{job.slide}: no such file")
    status = job.slide.stat()
    parts = [model_digest(job.run), str(job.slide), status.st_size, status.st_mtime_ns]
    return json.dumps([*parts, job.settings.model_dump(exclude={"readers"})])


def _done_before(job: SlideJob, made_with: str) -> SlideState | None:
    """The saved state, if the slide was predicted with the same inputs and its files exist."""
    state = read_state(job.folder)
    if state is None or state.state != "done" or state.made_with != made_with:
        return None
    return state if all((job.folder / name).is_file() for name in OUTPUTS) else None


def read_state(folder: Path) -> SlideState | None:
    """Read the state of the slide in this folder; None if there is none."""
    try:
        state = SlideState(**read_json(folder / _STATE))
    except (OSError, ValueError, TypeError):
        return None
    texts = (state.slide, state.state, state.why, state.made_with)
    usable = isinstance(state.record, dict) and all(isinstance(text, str) for text in texts)
    return state if usable else None


def save_slides(states: Iterable[SlideState], out: Path) -> None:
    """Write `slides.csv`: one row for each slide of this or an earlier call, sorted by name."""
    with exclusive(out, ".table.lock", wait=lambda _: None):  # calls may share the folder
        remove_abandoned(out)
        _save_slides(states, out)


def _save_slides(states: Iterable[SlideState], out: Path) -> None:
    earlier = [state for folder in (sorted(out.iterdir()) if out.is_dir() else ()) if (state := read_state(folder))]
    rows = {state.slide: _row(state) for state in [*earlier, *states]}
    save_table([rows[slide] for slide in sorted(rows)], out / "slides.csv")


def _row(state: SlideState) -> dict[str, Any]:
    return {"slide": state.slide, **state.record, "state": state.state, "why": state.why, "seconds": state.seconds}


@lru_cache(maxsize=1)
def _model(run: Path, weights: str) -> Model:  # noqa: ARG001 - part of the cache key: the run may be retrained
    return load(run)
