"""Many slides: each done or failed for itself, and one table of all."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from histolumen.engine.checkpoint import find_model, weights_digest
from histolumen.engine.model import Model, load
from histolumen.errors import ConfigError, HistolumenError, SlideError
from histolumen.export.files import save_json, save_table
from histolumen.slides.maps import Track
from histolumen.slides.predict import OUTPUTS, SlideSettings, predict_slide
from histolumen.slides.reader import find_slides

_STATE = "state.json"
_one_at_a_time = threading.Lock()  # workers with several threads share one model, and its memory


@dataclass(frozen=True)
class SlideJob:
    """A slide to answer for, with all that a worker on another machine needs to know."""

    slide: Path
    folder: Path
    run: Path
    settings: SlideSettings


@dataclass(frozen=True)
class SlideState:
    """What became of a slide. `made_with` tells a later run whether the answer still holds."""

    slide: str
    state: Literal["done", "failed"]
    why: str = ""
    seconds: float = 0.0
    record: dict[str, Any] = field(default_factory=dict)
    made_with: str = ""


def plan_jobs(
    run: Path, inputs: Sequence[Path], out: Path, settings: SlideSettings
) -> tuple[list[SlideJob], list[SlideState]]:
    """One job per slide; those of one name, which would share a folder, have failed already."""
    slides = list(dict.fromkeys(path.absolute() for path in find_slides(list(inputs))))
    if not slides:
        raise SlideError(f"{inputs[0]}: no slides in it")
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


def do_slides(
    jobs: Iterable[SlideJob], track: Callable[[str], Track] = lambda _: lambda tiles, __: tiles
) -> Iterator[SlideState]:
    """Do slides one after the other in this process; those done before, by the same model, are not done again."""
    for job in jobs:
        yield do_slide(job, track(job.slide.stem))


def do_slide(job: SlideJob, track: Track = lambda tiles, _: tiles) -> SlideState:
    """Do one slide and note what became of it; no slide's failure stops another."""
    with _one_at_a_time:
        return _do_slide(job, track)


def _do_slide(job: SlideJob, track: Track) -> SlideState:
    started, made_with = time.perf_counter(), ""
    try:
        made_with = _made_with(job)
        if before := _done_before(job, made_with):
            return before
        record = predict_slide(_model(job.run, weights_digest(job.run)), job.slide, job.folder, job.settings, track)
        state = SlideState(str(job.slide), "done", record=record, made_with=made_with)
    except ConfigError:  # true of every slide: nothing to go on with
        raise
    except HistolumenError as error:
        state = SlideState(str(job.slide), "failed", str(error))
    except Exception as error:  # noqa: BLE001 - whatever a damaged file brings about in the libraries that read it
        state = SlideState(str(job.slide), "failed", f"{job.slide}: {type(error).__name__}: {error}")
    state = replace(state, seconds=round(time.perf_counter() - started, 2))
    if state.state == "failed" and (elsewhere := _done_before(job, made_with)):
        return elsewhere  # by a worker that was taken for lost, and has cleared up
    try:
        save_json(asdict(state), job.folder / _STATE)
    except HistolumenError as error:  # a full disk: the answer cannot be kept
        state = SlideState(str(job.slide), "failed", state.why or str(error), state.seconds)
    return state


def _made_with(job: SlideJob) -> str:
    """All that an answer depends on; another file of the same name is another slide."""
    if not job.slide.is_file():
        raise SlideError(f"{job.slide}: no such file")
    status = job.slide.stat()
    parts = [weights_digest(job.run), str(job.slide), status.st_size, status.st_mtime_ns]
    return json.dumps([*parts, asdict(replace(job.settings, readers=1))])


def _done_before(job: SlideJob, made_with: str) -> SlideState | None:
    """The slide's state, if it was done with just this and its files are there."""
    state = read_state(job.folder)
    if state is None or state.state != "done" or state.made_with != made_with:
        return None
    return state if all((job.folder / name).is_file() for name in OUTPUTS) else None


def read_state(folder: Path) -> SlideState | None:
    """What became of the slide of this folder; None: nothing yet."""
    try:
        return SlideState(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def save_slides(states: Iterable[SlideState], out: Path) -> None:
    """Write `slides.csv`: one row for each slide that ever was done or failed in this folder, by name."""
    before = [state for folder in sorted(out.iterdir()) if (state := read_state(folder))]
    rows = {state.slide: _row(state) for state in [*before, *states]}
    save_table([rows[slide] for slide in sorted(rows)], out / "slides.csv")


def _row(state: SlideState) -> dict[str, Any]:
    return {"slide": state.slide, **state.record, "state": state.state, "why": state.why, "seconds": state.seconds}


@lru_cache(maxsize=1)
def _model(run: Path, weights: str) -> Model:  # noqa: ARG001 - a model trained anew is another one
    return load(run)
