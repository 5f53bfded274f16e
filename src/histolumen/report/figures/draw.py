"""All figures of a run, a benchmark or a study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from histolumen.data.manifest import Manifest, read_manifest
from histolumen.engine.checkpoint import find_model
from histolumen.engine.evaluate import Binarisation
from histolumen.engine.model import load
from histolumen.engine.runlog import read_metrics
from histolumen.errors import RunError
from histolumen.progress import SILENT, Progress
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.figures.classification import draw_reliability, draw_roc
from histolumen.report.figures.confusion import draw_confusions
from histolumen.report.figures.curves import draw_studies, draw_training
from histolumen.report.figures.energies import draw_energies
from histolumen.report.figures.pictures import DrawnRun, file_name
from histolumen.report.figures.qualitative import draw_grids
from histolumen.report.figures.regions import draw_regions, has_regions
from histolumen.report.figures.samples import draw_samples
from histolumen.report.figures.sizes import draw_normal_sizes, draw_sizes
from histolumen.report.figures.style import save
from histolumen.report.runs.measured import is_trained, measure
from histolumen.report.runs.plan import Job, Plan, read_plan
from histolumen.report.runs.runner import RunResult, finished_runs, run_folder
from histolumen.report.study import CURVES, StudyPlan


@dataclass(frozen=True)
class _Source:
    """Finished runs to draw: all of them, and those of the figures of regions, samples and sizes."""

    runs: dict[str, DrawnRun]
    of_interest: dict[str, DrawnRun]
    manifest: Manifest
    split: str
    binarise: Binarisation


@dataclass(frozen=True)
class _Curve:
    """A study of one setting."""

    plan: StudyPlan
    jobs: list[Job]
    folder: Path


def draw_all(
    sources: Sequence[Path],
    out: Path,
    split: str | None = None,
    images: int = 6,
    binarise: Binarisation | None = None,
    progress: Progress = SILENT,
) -> list[Path]:
    """Write every figure that the sources have the data for, and return the files.

    Args:
        sources: the folder of `train`, `benchmark` or `study`, or several studies of one setting each.
        out: folder for PDF and PNG files.
        split: split to evaluate, for single runs; None: test, or valid if there is no test image.
        images: number of images of the figures that show some, of each class where there is one figure per class.
        binarise: how soft masks are binarised; None: as in the last call of `benchmark` or `study`.
        progress: receives a message about each figure that cannot be drawn.
    """
    found = [_find(source, split, binarise) for source in sources]  # raises before anything is written
    curves = [each for each in found if isinstance(each, _Curve)]
    if len(found) > 1 and len(curves) < len(found):
        raise RunError("several folders are drawn as one figure only if each is a study of lambda, sigma or omega")
    names = [curve.plan.study for curve in curves]
    if len(set(names)) < len(names):
        raise RunError(f"two of the folders are studies of {max(names, key=names.count)}; give one of them")
    written = save(draw_energies(), out, "energies")
    if curves:
        by_setting = {curve.plan.study: curve for curve in curves}
        ordered = {name: _evaluated(by_setting[name]) for name in CURVES if name in by_setting}
        return written + save(draw_studies(ordered), out, f"study-{'-'.join(ordered)}")
    for source in found:
        if isinstance(source, _Source):
            written += _draw_runs(source, out, images, progress)
    return written


def _find(source: Path, split: str | None, binarise: Binarisation | None) -> _Source | _Curve:
    """What a folder holds; anything but finished runs is refused."""
    plan = next(
        (read_plan(source, kind) for kind in (BenchmarkPlan, StudyPlan) if (source / kind.file).is_file()), None
    )
    if plan is not None:
        return _planned(plan if binarise is None else plan.model_copy(update={"binarise": binarise}), source)
    if (source / "config.yaml").is_file():
        find_model(source)  # raises if no epoch is finished
        manifest = read_manifest(source / "manifest.csv")
        rule: Binarisation = binarise or "threshold"
        runs = {source.resolve().name: DrawnRun(source, rule)}
        default = "test" if manifest.split("test").rows else "valid"
        return _Source(runs, runs, manifest, split or default, rule)
    raise RunError(f"{source}: neither a run nor a benchmark nor a study; give the folder that one of them wrote")


def _planned(plan: Plan, source: Path) -> _Source | _Curve:
    jobs = [job for job in plan.jobs() if is_trained(run_folder(source, job), job.config.train.epochs)]
    if not jobs:
        raise RunError(f"{source}: contains no finished run; finish one, then draw the figures")
    if isinstance(plan, StudyPlan) and plan.study in CURVES:
        return _Curve(plan, jobs, source)
    runs = _first_seed(jobs, source)
    of_interest = _first_seed([job for job in jobs if job.config.method.name == "maxmin"], source) or runs
    manifest = read_manifest(next(iter(runs.values())).folder / "manifest.csv")
    return _Source(runs, of_interest if isinstance(plan, BenchmarkPlan) else {}, manifest, plan.split, plan.binarise)


def _first_seed(jobs: list[Job], source: Path) -> dict[str, DrawnRun]:
    """The run of each title; of several seeds, the first finished one."""
    runs: dict[str, DrawnRun] = {}
    for job in jobs:
        runs.setdefault(job.title, DrawnRun(run_folder(source, job), job.binarise))
    return runs


def _evaluated(curve: _Curve) -> list[RunResult]:
    """The results of a study; runs without a current evaluation are evaluated."""
    manifest = read_manifest(run_folder(curve.folder, curve.jobs[0]) / "manifest.csv")
    for job in curve.jobs:
        measure(run_folder(curve.folder, job), manifest, curve.plan.split, job.binarise)
    return finished_runs(curve.plan, manifest, curve.folder)


def _draw_runs(source: _Source, out: Path, images: int, progress: Progress) -> list[Path]:
    runs, manifest, split = source.runs, source.manifest, source.split
    suffix = "" if source.binarise == "threshold" else f"-{source.binarise}"  # as in the names of the tables
    written = save(draw_training({title: read_metrics(run.folder) for title, run in runs.items()}), out, "training")
    written += _draw_regions(source, out, images)
    measured = {title: measure(run.folder, manifest, split, run.binarise) for title, run in runs.items()}
    if source.of_interest:
        samples = draw_samples(source.of_interest, manifest, split, images, progress)
        written += save(samples, out, f"samples{suffix}")
    written += _draw_classification({title: m for title, m in measured.items() if "auc" in m}, out)
    matrices = {title: m["pixel_confusion"] for title, m in measured.items() if m["pixel_confusion"]}
    if not matrices:
        progress.message(f"split '{split}' has no masks: confusion, sizes and qualitative are not drawn")
        return written
    written += save(draw_confusions(matrices), out, f"confusion{suffix}")
    if source.of_interest:
        written += _draw_sizes(source.of_interest, manifest, out, suffix, progress)
    for name, grid in draw_grids(runs, manifest, split, images, progress).items():
        written += save(grid, out, f"{name}{suffix}")
    return written


def _draw_classification(evaluations: dict[str, dict[str, Any]], out: Path) -> list[Path]:
    """Figures of the methods that classify."""
    if not evaluations:
        return []
    written = save(draw_reliability(evaluations), out, "reliability")
    roc = draw_roc(evaluations)
    return written if roc is None else written + save(roc, out, "roc")


def _draw_regions(source: _Source, out: Path, images: int) -> list[Path]:
    """One figure per Max-Min run."""
    written = []
    for title, run in source.of_interest.items():
        model = load(run.folder)
        if has_regions(model):
            name = "regions" if len(source.runs) == 1 else file_name("regions", title)
            written += save(draw_regions(model, source.manifest, source.split, images), out, name)
    return written


def _draw_sizes(
    runs: dict[str, DrawnRun], manifest: Manifest, out: Path, suffix: str, progress: Progress
) -> list[Path]:
    splits = [s for s in ("train", "valid", "test") if any(row.mask for row in manifest.split(s).rows)]
    evaluations: dict[tuple[str, str], dict[str, Any]] = {
        (title, split): measure(run.folder, manifest, split, run.binarise)
        for title, run in runs.items()
        for split in splits
    }
    written = save(draw_sizes(evaluations), out, f"sizes{suffix}")
    normal = draw_normal_sizes(evaluations)
    if normal is None:
        progress.message("every image has foreground: no figure of normal samples is drawn")
        return written
    return written + save(normal, out, f"sizes-normal{suffix}")
