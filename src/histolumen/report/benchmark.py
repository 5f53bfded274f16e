"""Training and measuring every method of a plan, one run after the other; finished work is never done again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from histolumen.config import RunConfig
from histolumen.data.manifest import Manifest
from histolumen.engine.resume import check_folder
from histolumen.engine.runlog import read_metrics
from histolumen.engine.train import train
from histolumen.errors import DataError, HistolumenError, RunError
from histolumen.export.files import save_json
from histolumen.report.measured import known_measurement, measure
from histolumen.report.plan import Plan
from histolumen.report.rows import BenchmarkRow

_PLAN = "benchmark.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class RunResult:
    """One finished run: its scores, and how long training took."""

    row: BenchmarkRow
    seed: int
    folder: Path
    evaluation: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class BenchmarkResult:
    """All runs of a plan, and what went wrong with those that are missing."""

    plan: Plan
    runs: list[RunResult]
    failures: list[str]


def run_benchmark(plan: Plan, manifest: Manifest, out: Path, say: Say = lambda _: None) -> BenchmarkResult:
    """Do what is still to be done of `plan` in folder `out`.

    A run that fails is reported and left out; the others go on.
    """
    _check(plan, manifest)
    configs = {(row.name, seed): plan.config(row, seed) for row in plan.rows for seed in plan.seeds}  # errors first
    save_json(plan.model_dump(mode="json"), out / _PLAN)
    runs, failures = [], []
    started, trained = time.monotonic(), 0
    for number, (name, seed) in enumerate(configs, start=1):
        row = next(row for row in plan.rows if row.name == name)
        folder = run_folder(out, row, seed)
        done = _known(folder, plan, configs[name, seed])
        left = _left(started, trained, len(configs) - number + 1) if trained else ""
        say(f"run {number} of {len(configs)}: {name}, seed {seed}{' (done before)' if done else left}")
        try:
            check_folder(folder, configs[name, seed], manifest, resume=True)
            if done is None:
                train(configs[name, seed], manifest, folder, resume=True, devices="1")
                done = measure(folder, manifest, plan.split, plan.binarise)
                trained += 1
            runs.append(RunResult(row, seed, folder, done, training_seconds(folder)))
        except HistolumenError as error:
            failures.append(f"{name}, seed {seed}: {error}")
            say(f"  left out: {error}")
    return BenchmarkResult(plan, runs, failures)


def read_benchmark(out: Path) -> BenchmarkResult:
    """The finished runs of a benchmark folder."""
    try:
        plan = Plan.model_validate_json((out / _PLAN).read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{out / _PLAN}: not the plan of a benchmark; run `histolumen benchmark` first") from error
    runs = []
    for row in plan.rows:
        for seed in plan.seeds:
            folder = run_folder(out, row, seed)
            done = _known(folder, plan, plan.config(row, seed))
            if done is not None:
                runs.append(RunResult(row, seed, folder, done, training_seconds(folder)))
    return BenchmarkResult(plan, runs, [])


def is_benchmark(folder: Path) -> bool:
    """Whether a folder was written by `run_benchmark`."""
    return (folder / _PLAN).is_file()


def run_folder(out: Path, row: BenchmarkRow, seed: int) -> Path:
    """Where a row's run lies."""
    return out / "runs" / f"{row.name}-seed{seed}"


def _check(plan: Plan, manifest: Manifest) -> None:
    if not manifest.split(plan.split).rows:
        present = sorted({row.split for row in manifest.rows})
        raise DataError(f"the manifest has no image in split '{plan.split}'; give --split {' or '.join(present)}")
    if not any(row.mask for row in manifest.split(plan.split).rows):
        raise DataError(f"no image of split '{plan.split}' has a mask; a benchmark of masks needs some")


def training_seconds(folder: Path) -> float:
    """How long the epochs of a run took."""
    return sum(record["seconds"] for record in read_metrics(folder))


def _known(folder: Path, plan: Plan, config: RunConfig) -> dict[str, Any] | None:
    """The measurement of a run that needs nothing more."""
    if len(read_metrics(folder)) < config.train.epochs:
        return None
    return known_measurement(folder, plan.split, plan.binarise)


def _left(started: float, trained: int, remaining: int) -> str:
    minutes = (time.monotonic() - started) / trained * remaining / 60
    return f" (about {minutes:.0f} min left)" if minutes >= 1 else ""
