"""Trains and evaluates the jobs of a plan: in this process, in several processes, or on a cluster.

Finished jobs are skipped, interrupted jobs are resumed, and a failed job does not stop the others. A job is locked
while it runs, so calls with the same folder, on one or several machines, share the jobs. The operating system releases
the lock of a process that dies, so another process can resume its job at once.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from histolumen.atomic import remove_abandoned
from histolumen.data.manifest import Manifest
from histolumen.engine.resume import check_folder
from histolumen.engine.train import train
from histolumen.engine.workers import connect, run_on_workers
from histolumen.errors import DiskError, HistolumenError, LockedError, RunError
from histolumen.locking import exclusive
from histolumen.progress import SILENT, Progress
from histolumen.report.runs.measured import check_measurable, finished_measurement, measure, training_seconds
from histolumen.report.runs.plan import Job, Plan, save_plan

_POLL_SECONDS = 2.0  # interval of retries while other processes hold all remaining jobs
_one_at_a_time = threading.Lock()  # threads of a worker share torch's random state


@dataclass(frozen=True)
class RunResult:
    """One finished run: its scores and the duration of its training."""

    job: Job
    evaluation: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Results:
    """All finished runs of a plan, and one message per job that failed in this call."""

    plan: Plan
    runs: list[RunResult]
    failures: list[str]


class Outcome(NamedTuple):
    """Outcome of a job in this call; `held`: another process is running it."""

    status: Literal["done", "already done", "held", "failed"]
    reason: str = ""


def run_plan(
    plan: Plan,
    manifest: Manifest,
    out: Path,
    *,
    workers: int = 1,
    cluster: str | None = None,
    progress: Progress = SILENT,
) -> Results:
    """Run the unfinished jobs of `plan` in folder `out`; the result includes the runs of earlier calls.

    Args:
        plan: the jobs.
        manifest: the images.
        out: folder for the runs; workers on other machines must see it, and the images, under the same path.
        workers: number of processes on this machine.
        cluster: address of a dask scheduler whose workers run the jobs instead of this machine.
        progress: receives a message for each job.
    """
    jobs = plan.jobs()
    for job in jobs:
        check_measurable(job.images(manifest), plan.split, needs_masks=plan.needs_masks)
    whole = save_plan(plan, out)
    manifest, out = replace(manifest, root=manifest.root.absolute()), out.absolute()
    run = partial(run_job, manifest=manifest, out=out, split=plan.split)
    with _executor(run, min(workers, len(jobs)), cluster, progress) as execute:
        failures = _run_jobs(jobs, execute, progress)
    return Results(whole, finished_runs(whole, manifest, out), failures)


def run_job(job: Job, manifest: Manifest, out: Path, split: str, progress: Progress = SILENT) -> Outcome:
    """Train and evaluate one job, unless it is finished or another process holds it."""
    folder, manifest = run_folder(out, job), job.images(manifest)
    try:
        with _one_at_a_time, exclusive(out / ".locks", f"{job.key}.lock"):
            remove_abandoned(folder, below=True)
            check_folder(folder, job.config, manifest, resume=True)
            if finished_measurement(folder, manifest, split, job.binarise, job.config.train.epochs) is not None:
                return Outcome("already done")
            progress.message(f"training {job.name}")
            train(job.config, manifest, folder, resume=True, devices="1", progress=progress)
            measure(folder, manifest, split, job.binarise, progress)
            return Outcome("done")
    except LockedError as error:
        return Outcome("held", str(error))
    except DiskError as error:
        if error.whole_disk:  # every further run would train in vain
            raise
        return Outcome("failed", str(error))
    except (HistolumenError, RuntimeError, OSError) as error:  # torch raises RuntimeError when out of memory
        return Outcome("failed", str(error).strip().partition("\n")[0] or type(error).__name__)


def finished_runs(plan: Plan, manifest: Manifest, out: Path) -> list[RunResult]:
    """The finished runs of a plan."""
    finished = []
    for job in plan.jobs():
        folder = run_folder(out, job)
        try:
            images = job.images(manifest)
            scores = finished_measurement(folder, images, plan.split, job.binarise, job.config.train.epochs)
        except RunError:  # already reported when the job was tried
            continue
        if scores is not None:
            finished.append(RunResult(job, scores, training_seconds(folder)))
    return finished


def run_folder(out: Path, job: Job) -> Path:
    """The run folder of a job."""
    return out / "runs" / job.key


_Execute = Callable[[list[Job]], Iterable[tuple[Job, Outcome]]]


@contextmanager
def _executor(run: Callable[..., Outcome], workers: int, cluster: str | None, progress: Progress) -> Iterator[_Execute]:
    """Return a function that runs jobs, one by one or on workers, and yields each outcome when it is ready."""
    if cluster is None and workers == 1:
        yield lambda jobs: ((job, run(job, progress=progress)) for job in jobs)
        return
    with connect(cluster, workers) as client:

        def execute(jobs: list[Job]) -> Iterator[tuple[Job, Outcome]]:
            for job, result in run_on_workers(client, run, jobs):
                failed = isinstance(result, Exception)
                yield job, Outcome("failed", f"failed on the workers ({result})") if failed else result

        yield execute


def _run_jobs(jobs: list[Job], execute: _Execute, progress: Progress) -> list[str]:
    """Run all jobs, those held by other processes last; return one message per failed job."""
    started, total, ended, trained, waiting, failures = time.monotonic(), len(jobs), 0, 0, False, []
    while jobs:
        held, holder = [], ""
        for job, (status, reason) in execute(jobs):
            if status == "held":
                held.append(job)
                holder = reason
                continue
            ended += 1
            trained += status == "done"
            if status == "failed":
                failures.append(f"{job.name}: {reason}")
            minutes = (time.monotonic() - started) / max(trained, 1) * (total - ended) / 60
            left = f" (about {minutes:.0f} min left)" if trained and minutes >= 1 else ""
            progress.message(f"run {ended} of {total}, {job.name}: {status}{': ' if reason else ''}{reason}{left}")
        if held and len(held) == len(jobs):
            if not waiting:
                progress.message(f"waiting for {len(held)} run(s) held by other processes")
                progress.message(holder)
            waiting = True
            time.sleep(_POLL_SECONDS)
        jobs = held
    return failures
