"""Ablations and hyper-parameter curves on Optuna: workers that are given the same storage share the points.

A point is a trial that waits in the storage until a worker takes it. A worker that dies stops beating, and its point
is queued again. Scores travel with the trial, so that every worker can write the whole table.
"""

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import optuna
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import TrialState

from histolumen.data.manifest import Manifest
from histolumen.engine.train import train
from histolumen.errors import ConfigError, HistolumenError, RunError
from histolumen.export.files import save_json
from histolumen.report.measured import check_measurable, measure, refuse_longer, training_seconds
from histolumen.report.study_plan import StudyPlan
from histolumen.report.study_points import Point

SCORES = ("error", "f1_plus", "f1_minus", "pxap")
_BEAT, _GRACE, _PATIENCE = 10, 40, 3  # seconds between heartbeats, until a worker counts as dead, and between looks
_FILE, _BEGAN = "study.json", "began"


@dataclass(frozen=True)
class PointResult:
    """What was measured at a point."""

    point: Point
    scores: dict[str, float]
    seconds: float


def by_label(results: list[PointResult]) -> dict[str, list[PointResult]]:
    """The results of each point, one per seed."""
    grouped: dict[str, list[PointResult]] = {}
    for result in results:
        grouped.setdefault(result.point.label, []).append(result)
    return grouped


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
    check_measurable(manifest, plan.split)
    out.mkdir(parents=True, exist_ok=True)
    study = _join(plan, manifest, storage or f"sqlite:///{(out / 'study.db').resolve()}")
    worker = _Worker(plan, manifest, out, study, say)
    worker.work()
    results = _results(study, worker.points)
    content = {"plan": plan.model_dump(mode="json"), "points": [asdict(result) for result in results]}
    save_json(content, out / _FILE)
    return results, list(worker.failures.values())


class _Worker:
    """Takes points that wait until none is left."""

    def __init__(self, plan: StudyPlan, manifest: Manifest, out: Path, study: optuna.Study, say: Callable[[str], None]):
        self.plan, self.manifest, self.out, self.study, self.say = plan, manifest, out, study, say
        self.points = {point.key: point for point in plan.points}
        self.failures: dict[str, str] = {}

    def work(self) -> None:
        told = False
        while True:
            self._give_up_on_the_dead()
            self._queue_what_nobody_has()
            if self._labels(TrialState.WAITING):
                self._take_one()
            elif self._labels(TrialState.RUNNING):
                if not told:
                    self.say("what is left is in the hands of other workers, or of one that died; waiting")
                told = True
                time.sleep(_PATIENCE)
            else:
                return

    def _take_one(self) -> None:
        try:
            self.study.optimize(self._objective, n_trials=1, catch=(HistolumenError,))
        except ValueError as error:
            if "Cannot tell" not in str(error):
                raise
            self.say("  another worker took this point over while this one was asleep")

    def _objective(self, trial: optuna.Trial) -> float:
        label = str(trial.suggest_categorical("point", list(self.points)))
        if self._is_taken(label, trial.number):
            raise optuna.TrialPruned
        trial.set_user_attr(_BEGAN, True)
        self.say(f"{len(self._labels(TrialState.COMPLETE)) + 1} of {len(self.points)}: {label}")
        try:
            scores, seconds = self._train_and_measure(self.points[label])
        except HistolumenError as error:
            self.failures[label] = f"{label}: {error}"
            self.say(f"  left out: {error}")
            raise
        try:
            for name, value in {**scores, "seconds": seconds}.items():
                trial.set_user_attr(name, value)
        except optuna.exceptions.UpdateFinishedTrialError as error:  # declared dead meanwhile
            raise optuna.TrialPruned from error
        return scores["f1_plus"]

    def _train_and_measure(self, point: Point) -> tuple[dict[str, float], float]:
        folder, config = point_folder(self.out, point.key), self.plan.config(point)
        refuse_longer(folder, config.train.epochs)
        train(config, self.manifest, folder, resume=True, devices="1")
        measured = measure(folder, self.manifest, self.plan.split, "honest")
        absent = [name for name in SCORES if measured.get(name) is None]
        if absent:
            raise RunError(f"{folder}: {absent[0]} is not defined on split '{self.plan.split}'")
        return {name: float(measured[name]) for name in SCORES}, training_seconds(folder)

    def _is_taken(self, label: str, number: int) -> bool:
        """Whether another trial of this point is done or under way; of two that start together the first one counts."""
        for other in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.COMPLETE)):
            if other.number != number and _label(other) == label:
                running = other.state is TrialState.RUNNING
                if not running or other.number < number or _BEGAN in other.user_attrs:
                    return True
        return False

    def _queue_what_nobody_has(self) -> None:
        held = self._labels(TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE)
        for label in self.points:
            if label not in held and label not in self.failures:
                self.study.enqueue_trial({"point": label})

    def _give_up_on_the_dead(self) -> None:
        """Fail the trials of workers that no longer beat, or that died before their first beat."""
        fail_stale_trials(self.study)
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            age = (datetime.now() - (trial.datetime_start or datetime.now())).total_seconds()
            if _BEGAN not in trial.user_attrs and age > _GRACE:
                self.study.tell(trial.number, state=TrialState.FAIL)

    def _labels(self, *states: TrialState) -> set[str]:
        """Points that have a trial in one of these states."""
        return {_label(trial) for trial in self.study.get_trials(deepcopy=False, states=states)}


def read_study(out: Path) -> tuple[StudyPlan, list[PointResult]]:
    """The results in a study's folder."""
    try:
        content = json.loads((out / _FILE).read_text(encoding="utf-8"))
        plan = StudyPlan.model_validate(content["plan"])
        known = {(point.label, point.seed): point for point in plan.points}
        found = [
            PointResult(known[p["point"]["label"], p["point"].get("seed")], p["scores"], p["seconds"])
            for p in content["points"]
        ]
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
    """Open the study, or start it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # failures are reported here, in one line
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # heartbeats
    try:
        storage = RDBStorage(url, heartbeat_interval=_BEAT, grace_period=_GRACE)
        return optuna.create_study(
            storage=storage, study_name=plan.key(manifest), direction="maximize", load_if_exists=True
        )
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"--storage {url}: cannot be opened ({reason})") from error


def _label(trial: optuna.trial.FrozenTrial) -> str:
    """The point of a trial, also of one that still waits."""
    return str((trial.params or trial.system_attrs.get("fixed_params", {})).get("point"))


def _results(study: optuna.Study, points: dict[str, Point]) -> list[PointResult]:
    done = {str(t.params["point"]): t.user_attrs for t in study.get_trials(states=(TrialState.COMPLETE,))}
    return [
        PointResult(point, {name: done[label][name] for name in SCORES}, done[label]["seconds"])
        for label, point in points.items()
        if label in done
    ]
