"""All figures that a folder has the material for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from histolumen.data.manifest import Manifest, read_manifest
from histolumen.engine.evaluate import Binarisation
from histolumen.engine.progress import track
from histolumen.engine.runlog import read_metrics
from histolumen.errors import RunError
from histolumen.report.benchmark import is_benchmark, read_benchmark
from histolumen.report.figures.confusion import draw_confusions
from histolumen.report.figures.curves import draw_study, draw_training
from histolumen.report.figures.energies import draw_energies
from histolumen.report.figures.grids import draw_grid
from histolumen.report.figures.sizes import draw_normal_sizes, draw_sizes
from histolumen.report.figures.style import save
from histolumen.report.measured import measure
from histolumen.report.study import is_study, point_folder, read_study

Say = Callable[[str], None]
_SIZED = ("eem", "sem")  # the methods whose sizes the paper shows


def draw_all(source: Path, out: Path, split: str | None, images: int, say: Say) -> list[Path]:
    """Write every figure that `source` (a run, a benchmark or a study) has the material for.

    Args:
        source: folder of `train`, `benchmark` or `study`.
        out: folder for PDF and PNG files.
        split: for single runs, what is measured; unset: test, or else valid.
        images: rows of the qualitative grid.
        say: is told what cannot be drawn, and why.
    """
    written = save(draw_energies(), out, "energies")
    if is_study(source):
        plan, results = read_study(source)
        if plan.study not in {"ablation", "parts"}:
            return written + save(draw_study(plan, results), out, f"study-{plan.study}")
        runs = {r.point.key: folder for r in results if (folder := _study_run(source, r.point.key))}
        absent = [r.point.label for r in results if r.point.label not in runs]
        if not runs:
            raise RunError(f"{source}: all runs of this study are with other workers; draw the figures there")
        if absent:
            say(f"with other workers, and not drawn: {', '.join(absent)}")
        return written + _of_runs(runs, {}, out, plan.split, images, "honest", say)
    if is_benchmark(source):
        result = read_benchmark(source)
        first = [run for run in result.runs if run.seed == result.plan.seeds[0]]
        if not first:
            raise RunError(f"{source}: no run of this benchmark is finished yet")
        runs = {run.row.title: run.folder for run in first}
        sized = {run.row.title: run.folder for run in first if run.row.name in _SIZED} or runs
        return written + _of_runs(runs, sized, out, result.plan.split, images, result.plan.binarise, say)
    if (source / "config.yaml").is_file():
        manifest = read_manifest(source / "manifest.csv")
        wanted = split or ("test" if manifest.split("test").rows else "valid")
        runs = {source.name: source}
        return written + _of_runs(runs, runs, out, wanted, images, "honest", say)
    raise RunError(f"{source}: neither a run nor a benchmark nor a study; give the folder that one of them wrote")


def _of_runs(
    runs: dict[str, Path],
    sized: dict[str, Path],
    out: Path,
    split: str,
    images: int,
    binarise: Binarisation,
    say: Say,
) -> list[Path]:
    manifest = read_manifest(next(iter(runs.values())) / "manifest.csv")
    written = save(draw_training({title: read_metrics(folder) for title, folder in runs.items()}), out, "training")
    measured = {title: measure(folder, manifest, split, binarise) for title, folder in runs.items()}
    matrices = {title: m["pixel_confusion"] for title, m in measured.items() if m["pixel_confusion"]}
    if not matrices:
        say(f"no masks in split '{split}': only the training curves and the energies can be drawn")
        return written
    written += save(draw_confusions(matrices), out, "confusion")
    if sized:
        written += _sizes(sized, manifest, out, binarise, say)
    grid = draw_grid(runs, manifest, split, images, binarise, lambda titles: track(titles, "drawing"))
    return written + save(grid, out, "qualitative")


def _sizes(runs: dict[str, Path], manifest: Manifest, out: Path, binarise: Binarisation, say: Say) -> list[Path]:
    splits = [s for s in ("train", "valid", "test") if any(row.mask for row in manifest.split(s).rows)]
    evaluations: dict[tuple[str, str], dict[str, Any]] = {
        (title, split): measure(folder, manifest, split, binarise) for title, folder in runs.items() for split in splits
    }
    written = save(draw_sizes(evaluations), out, "sizes")
    normal = draw_normal_sizes(evaluations)
    if normal is None:
        say("every image has foreground: there are no normal samples whose sizes could be drawn")
        return written
    return written + save(normal, out, "sizes-normal")


def _study_run(source: Path, key: str) -> Path | None:
    """The run of a point, if this worker made it."""
    folder = point_folder(source, key)
    return folder if (folder / "best").exists() else None
