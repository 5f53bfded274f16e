"""Training and measuring every method of a plan, one run after the other; finished work is never done again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from histolumen.config import RunConfig
from histolumen.data.manifest import Manifest, read_manifest
from histolumen.engine.resume import check_folder
from histolumen.engine.train import train
from histolumen.errors import HistolumenError, RunError
from histolumen.export.files import save_json
from histolumen.report.measured import check_measurable, finished_measurement, measure, training_seconds
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
    """All finished runs of a plan, and what went wrong with those that are missing."""

    plan: Plan
    runs: list[RunResult]
    failures: list[str]


def run_benchmark(plan: Plan, manifest: Manifest, out: Path, say: Say = lambda _: None) -> BenchmarkResult:
    """Do what is still to be done of `plan` in folder `out`.

    A run that fails is reported and left out; the others go on. What the folder holds from earlier calls, other methods
    and seeds, is part of the result.
    """
    check_measurable(manifest, plan.split)
    jobs = [(row, seed, plan.config(row, seed)) for row in plan.rows for seed in plan.seeds]  # errors come first
    whole = plan.joined(_read_plan(out)) if is_benchmark(out) else plan
    save_json(whole.model_dump(mode="json"), out / _PLAN)
    failures = []
    started, trained = time.monotonic(), 0
    for number, (row, seed, config) in enumerate(jobs, start=1):
        folder = run_folder(out, row, seed)
        place = f"run {number} of {len(jobs)}: {row.name}, seed {seed}"
        try:
            check_folder(folder, config, manifest, resume=True)
            if finished_measurement(folder, manifest, plan.split, plan.binarise, config.train.epochs) is not None:
                say(f"{place} (done before)")
                continue
            say(place + (_left(started, trained, len(jobs) - number + 1) if trained else ""))
            train(config, manifest, folder, resume=True, devices="1")
            measure(folder, manifest, plan.split, plan.binarise)
            trained += 1
        except (HistolumenError, RuntimeError, OSError) as error:  # a run without memory or disk, too, is only one run
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            failures.append(f"{row.name}, seed {seed}: {reason}")
            say(f"  left out: {reason}")
    return BenchmarkResult(whole, _finished(whole, manifest, out), failures)


def read_benchmark(out: Path) -> BenchmarkResult:
    """The finished runs of a benchmark folder."""
    plan = _read_plan(out)
    manifests = sorted(out.glob("runs/*/manifest.csv"))
    runs = _finished(plan, read_manifest(manifests[0]), out) if manifests else []
    return BenchmarkResult(plan, runs, [])


def is_benchmark(folder: Path) -> bool:
    """Whether a folder was written by `run_benchmark`."""
    return (folder / _PLAN).is_file()


def run_folder(out: Path, row: BenchmarkRow, seed: int) -> Path:
    """Where a row's run lies."""
    return out / "runs" / f"{row.name}-seed{seed}"


def _read_plan(out: Path) -> Plan:
    try:
        return Plan.model_validate_json((out / _PLAN).read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{out / _PLAN}: not the plan of a benchmark; run `histolumen benchmark` first") from error


def _finished(plan: Plan, manifest: Manifest, out: Path) -> list[RunResult]:
    runs = []
    for row in plan.rows:
        for seed in plan.seeds:
            folder, config = run_folder(out, row, seed), plan.config(row, seed)
            done = _measurement(folder, manifest, plan, config)
            if done is not None:
                runs.append(RunResult(row, seed, folder, done, training_seconds(folder)))
    return runs


def _measurement(folder: Path, manifest: Manifest, plan: Plan, config: RunConfig) -> dict[str, Any] | None:
    try:
        return finished_measurement(folder, manifest, plan.split, plan.binarise, config.train.epochs)
    except RunError:  # reported when it was tried
        return None


def _left(started: float, trained: int, remaining: int) -> str:
    minutes = (time.monotonic() - started) / trained * remaining / 60
    return f" (about {minutes:.0f} min left)" if minutes >= 1 else ""
