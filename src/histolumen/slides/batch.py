"""Many slides: each done or failed for itself, and one table of all."""

import json
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
from histolumen.slides.predict import SlideSettings, predict_slide
from histolumen.slides.reader import find_slides

_STATE = "state.json"


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
) -> tuple[list[SlideJob], list[str]]:
    """One job per slide, and a sentence for each name that several slides have, of which none can be done."""
    slides = list(dict.fromkeys(path.absolute() for path in find_slides(list(inputs))))
    if not slides:
        raise SlideError(f"{inputs[0]}: no slides in it")
    count = Counter(path.stem for path in slides)
    repeated = [
        f"{path}: {count[path.stem]} slides are called {path.stem}; rename them or use another --out for each"
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
    before = read_state(job.folder)
    made_with = f"{weights_digest(job.run)} {asdict(replace(job.settings, readers=1))}"
    if before is not None and before.state == "done" and before.made_with == made_with:
        return before
    started = time.perf_counter()
    try:
        record = predict_slide(_model(job.run), job.slide, job.folder, job.settings, track)
        state = SlideState(str(job.slide), "done", record=record, made_with=made_with)
    except ConfigError:  # true of every slide: nothing to go on with
        raise
    except HistolumenError as error:
        state = SlideState(str(job.slide), "failed", str(error))
    except Exception as error:  # noqa: BLE001 - whatever a damaged file brings about in the libraries that read it
        state = SlideState(str(job.slide), "failed", f"{job.slide}: {type(error).__name__}: {error}")
    state = replace(state, seconds=round(time.perf_counter() - started, 2))
    try:
        save_json(asdict(state), job.folder / _STATE)
    except HistolumenError as error:  # a full disk: the answer cannot be kept
        state = SlideState(str(job.slide), "failed", state.why or str(error), state.seconds)
    return state


def read_state(folder: Path) -> SlideState | None:
    """What became of the slide of this folder; None: nothing yet."""
    try:
        return SlideState(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def save_slides(states: Iterable[SlideState], path: Path) -> None:
    """Write the table of all slides, one row each, by name."""
    rows = {state.slide: _row(state) for state in states}
    save_table([rows[slide] for slide in sorted(rows)], path)


def _row(state: SlideState) -> dict[str, Any]:
    return {"slide": state.slide, **state.record, "state": state.state, "why": state.why, "seconds": state.seconds}


@lru_cache(maxsize=1)
def _model(run: Path) -> Model:
    return load(run)
