"""Ablations and hyper-parameter curves on Optuna: workers that are given the same storage share the points.

A point is a trial that waits in the storage until a worker takes it. A worker that dies stops beating, and its trial
waits again. Scores travel with the trial, so that every worker can write the whole table.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import TrialState

from histolumen.config import RunConfig, parse_config, read_recipe, set_key
from histolumen.data.manifest import Manifest
from histolumen.engine.train import train
from histolumen.errors import ConfigError, HistolumenError, RunError
from histolumen.export.files import save_json
from histolumen.report.benchmark import training_seconds
from histolumen.report.measured import measure
from histolumen.report.study_points import KINDS, Kind, Point, StudyName, points_of
from histolumen.settings import Settings

SCORES = ("error", "f1_plus", "f1_minus", "pxap")
_BEAT, _GRACE, _PATIENCE = 10, 40, 3  # seconds between heartbeats, until a worker counts as dead, and between looks
_FILE = "study.json"


class StudyPlan(Settings):
    """What a study varies, and on what."""

    study: StudyName
    """Which of the paper's studies."""
    recipe: str
    """The recipe whose Max-Min settings are varied."""
    overrides: tuple[str, ...] = ()
    """`block.key=value`, for every point."""
    kinds: tuple[Kind, ...] = KINDS
    """Forms of the background term."""
    split: str = "valid"
    """What is measured."""

    @property
    def points(self) -> list[Point]:
        """One training each."""
        return points_of(self.study, self.kinds)

    def config(self, point: Point) -> RunConfig:
        """The recipe at a point."""
        raw = read_recipe(self.recipe)
        if raw.get("method", {}).get("name") != "maxmin":
            raise ConfigError(f"{self.recipe}: a study varies Max-Min, and this is a recipe of another method")
        if point.method is not None:
            alignment = raw["method"].get("alignment")
            raw["method"] = {"name": point.method} | ({"alignment": alignment} if alignment else {})
        replaced = point.method is not None  # then settings of Max-Min mean nothing
        for override in (*self.overrides, *point.overrides):
            if not (replaced and override.startswith("method.")):
                set_key(raw, override)
        return parse_config(raw)

    def key(self, manifest: Manifest) -> str:
        """Name in the storage; another recipe or other images are another study."""
        rows = [(row.image, row.label, row.split) for row in manifest.rows]
        configs = [self.config(point).as_dict() for point in self.points]
        digest = hashlib.sha256(json.dumps([self.split, rows, configs]).encode()).hexdigest()
        return f"histolumen-{self.study}-{digest[:12]}"


@dataclass(frozen=True)
class PointResult:
    """What was measured at a point."""

    point: Point
    scores: dict[str, float]
    seconds: float


def run_study(
    plan: StudyPlan, manifest: Manifest, out: Path, storage: str | None, say: Callable[[str], None] = lambda _: None
) -> tuple[list[PointResult], list[str]]:
    """Work on a study until every point is done, by this worker or another; gives results and failures.

    Args:
        plan: what to do.
        manifest: on what.
        out: folder for this worker's runs and the final table.
        storage: database that workers share, as SQLAlchemy names it; unset: a file in `out`.
        say: is told what happens.
    """
    out.mkdir(parents=True, exist_ok=True)
    study = _join(plan, manifest, storage or f"sqlite:///{(out / 'study.db').resolve()}")
    points = {point.label: point for point in plan.points}
    failures: list[str] = []

    def objective(trial: optuna.Trial) -> float:
        label = str(trial.suggest_categorical("point", list(points)))
        if label in _labels(study, TrialState.COMPLETE):
            raise optuna.TrialPruned
        say(f"{len(_labels(study, TrialState.COMPLETE)) + 1} of {len(points)}: {label}")
        try:
            scores, seconds = _train_and_measure(plan, points[label], manifest, out)
        except HistolumenError as error:
            failures.append(f"{label}: {error}")
            raise
        for name, value in {**scores, "seconds": seconds}.items():
            trial.set_user_attr(name, value)
        return scores["f1_plus"]

    waiting_said = False
    while True:
        fail_stale_trials(study)
        open_points = [label for label in points if label not in _labels(study, TrialState.COMPLETE)]
        if not open_points:
            break
        if _labels(study, TrialState.WAITING):
            study.optimize(objective, n_trials=1, catch=(HistolumenError,))
        elif _labels(study, TrialState.RUNNING):
            if not waiting_said:
                say("all that is left is in the hands of other workers (or of one that died); waiting for them")
            waiting_said = True
            time.sleep(_PATIENCE)
        else:
            break
    results = _results(study, points)
    content = {"plan": plan.model_dump(mode="json"), "points": [asdict(result) for result in results]}
    save_json(content, out / _FILE)
    return results, failures


def read_study(out: Path) -> tuple[StudyPlan, list[PointResult]]:
    """The results in a study's folder."""
    try:
        content = json.loads((out / _FILE).read_text(encoding="utf-8"))
        plan = StudyPlan.model_validate(content["plan"])
        by_label = {point.label: point for point in plan.points}
        found = [PointResult(by_label[p["point"]["label"]], p["scores"], p["seconds"]) for p in content["points"]]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{out / _FILE}: not the results of a study; run `histolumen study` first") from error
    return plan, found


def is_study(folder: Path) -> bool:
    """Whether a folder was written by `run_study`."""
    return (folder / _FILE).is_file()


def point_folder(out: Path, label: str) -> Path:
    """Where a worker keeps the run of a point."""
    return out / "runs" / "".join(c if c.isalnum() or c in ".-=" else "-" for c in label)


def _join(plan: StudyPlan, manifest: Manifest, url: str) -> optuna.Study:
    """Open the study, or start it with all its points waiting."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = RDBStorage(
            url,
            heartbeat_interval=_BEAT,
            grace_period=_GRACE,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
        )
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"--storage {url}: cannot be opened ({reason})") from error
    study = optuna.create_study(
        storage=storage, study_name=plan.key(manifest), direction="maximize", load_if_exists=True
    )
    for point in plan.points:
        study.enqueue_trial({"point": point.label}, skip_if_exists=True)
    return study


def _labels(study: optuna.Study, state: TrialState) -> set[str]:
    """Points that have a trial in this state."""
    found = study.get_trials(deepcopy=False, states=(state,))
    fixed = [trial.params or trial.system_attrs.get("fixed_params", {}) for trial in found]
    return {str(params.get("point")) for params in fixed}


def _train_and_measure(plan: StudyPlan, point: Point, manifest: Manifest, out: Path) -> tuple[dict[str, float], float]:
    folder = point_folder(out, point.label)
    train(plan.config(point), manifest, folder, resume=True, devices="1")
    measured: dict[str, Any] = measure(folder, manifest, plan.split, "honest")
    if "f1_plus" not in measured:
        raise RunError(f"no image of split '{plan.split}' has a mask; a study of masks needs some")
    return {name: float(measured[name]) for name in SCORES}, training_seconds(folder)


def _results(study: optuna.Study, points: dict[str, Point]) -> list[PointResult]:
    done = {str(t.params["point"]): t.user_attrs for t in study.get_trials(states=(TrialState.COMPLETE,))}
    return [
        PointResult(point, {name: done[label][name] for name in SCORES}, done[label]["seconds"])
        for label, point in points.items()
        if label in done
    ]
