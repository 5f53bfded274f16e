"""All figures of a run, a benchmark or a study."""

from pathlib import Path
from typing import Any

from histolumen.data.manifest import Manifest, read_manifest
from histolumen.engine.evaluate import Binarisation
from histolumen.engine.runlog import read_metrics
from histolumen.errors import RunError
from histolumen.progress import SILENT, Progress
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.figures.confusion import draw_confusions
from histolumen.report.figures.curves import draw_study, draw_training
from histolumen.report.figures.energies import draw_energies
from histolumen.report.figures.qualitative import draw_grid
from histolumen.report.figures.sizes import draw_normal_sizes, draw_sizes
from histolumen.report.figures.style import save
from histolumen.report.runs.measured import is_trained, measure
from histolumen.report.runs.plan import Job, Plan, read_plan
from histolumen.report.runs.runner import RunResult, finished_runs, run_folder
from histolumen.report.study import StudyPlan


def draw_all(source: Path, out: Path, split: str | None, images: int, progress: Progress = SILENT) -> list[Path]:
    """Write every figure that `source` has the data for, and return the files.

    Args:
        source: folder of `train`, `benchmark` or `study`.
        out: folder for PDF and PNG files.
        split: split to evaluate, for single runs; None: test, or valid if there is no test image.
        images: number of rows of the qualitative figure.
        progress: receives a message about each figure that cannot be drawn.
    """
    written = save(draw_energies(), out, "energies")
    plan = next(
        (read_plan(source, kind) for kind in (BenchmarkPlan, StudyPlan) if (source / kind.file).is_file()), None
    )
    if plan is not None:
        jobs = [job for job in plan.jobs() if is_trained(run_folder(source, job), job.config.train.epochs)]
        if not jobs:
            raise RunError(f"{source}: contains no finished run; finish one, then draw the figures")
        if isinstance(plan, StudyPlan) and jobs[0].value is not None:
            return written + save(draw_study(plan.study, _evaluated(plan, jobs, source)), out, f"study-{plan.study}")
        runs = _first_seed(jobs, source)
        with_sizes = _first_seed([job for job in jobs if job.config.method.name == "maxmin"], source) or runs
        with_sizes = with_sizes if isinstance(plan, BenchmarkPlan) else {}
        return written + _draw_runs(runs, with_sizes, out, plan.split, images, plan.binarise, progress)
    if (source / "config.yaml").is_file():
        test = read_manifest(source / "manifest.csv").split("test").rows
        runs = {source.name: source}
        return written + _draw_runs(
            runs, runs, out, split or ("test" if test else "valid"), images, "threshold", progress
        )
    raise RunError(f"{source}: neither a run nor a benchmark nor a study; give the folder that one of them wrote")


def _first_seed(jobs: list[Job], source: Path) -> dict[str, Path]:
    """The run of each title; of several seeds, the first finished one."""
    runs: dict[str, Path] = {}
    for job in jobs:
        runs.setdefault(job.title, run_folder(source, job))
    return runs


def _evaluated(plan: Plan, jobs: list[Job], source: Path) -> list[RunResult]:
    """The results of a plan; runs without a current evaluation are evaluated."""
    manifest = read_manifest(run_folder(source, jobs[0]) / "manifest.csv")
    for job in jobs:
        measure(run_folder(source, job), manifest, plan.split, job.binarise)
    return finished_runs(plan, manifest, source)


def _draw_runs(
    runs: dict[str, Path],
    with_sizes: dict[str, Path],
    out: Path,
    split: str,
    images: int,
    binarise: Binarisation,
    progress: Progress,
) -> list[Path]:
    manifest = read_manifest(next(iter(runs.values())) / "manifest.csv")
    written = save(draw_training({title: read_metrics(folder) for title, folder in runs.items()}), out, "training")
    measured = {title: measure(folder, manifest, split, binarise) for title, folder in runs.items()}
    matrices = {title: m["pixel_confusion"] for title, m in measured.items() if m["pixel_confusion"]}
    if not matrices:
        progress.message(f"split '{split}' has no masks: only training curves and energies are drawn")
        return written
    written += save(draw_confusions(matrices), out, "confusion")
    if with_sizes:
        written += _draw_sizes(with_sizes, manifest, out, binarise, progress)
    grid = draw_grid(runs, manifest, split, images, binarise, progress)
    return written + save(grid, out, "qualitative")


def _draw_sizes(
    runs: dict[str, Path], manifest: Manifest, out: Path, binarise: Binarisation, progress: Progress
) -> list[Path]:
    splits = [s for s in ("train", "valid", "test") if any(row.mask for row in manifest.split(s).rows)]
    evaluations: dict[tuple[str, str], dict[str, Any]] = {
        (title, split): measure(folder, manifest, split, binarise) for title, folder in runs.items() for split in splits
    }
    written = save(draw_sizes(evaluations), out, "sizes")
    normal = draw_normal_sizes(evaluations)
    if normal is None:
        progress.message("every image has foreground: no figure of normal samples is drawn")
        return written
    return written + save(normal, out, "sizes-normal")
