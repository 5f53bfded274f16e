"""Write the report of any folder that histolumen has written."""

from pathlib import Path

from histolumen.errors import RunError
from histolumen.progress import SILENT, Progress
from histolumen.report.html import plan, predictions, run, slides
from histolumen.report.html.content import Page
from histolumen.report.html.page import save_page

FILE = "report.html"


def write_report(
    source: Path,
    out: Path | None = None,
    split: str | None = None,
    images: Path | None = None,
    count: int | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Write the report of a run, benchmark, study, predictions or slides, and return its path.

    Args:
        source: the folder that `train`, `benchmark`, `study`, `predict` or `slide` wrote.
        out: HTML file; None: `report.html` in the folder.
        split: for a run: split to evaluate; None: the first of valid, test and train that has images.
        images: folder of the images, if they have moved.
        count: number of images in the gallery; None: 18, and 6 where methods are compared.
        progress: counts images.
    """
    page = _page(source, split, images, {} if count is None else {"count": count}, progress)
    return save_page(page, out or source / FILE)


def write_training_report(folder: Path, progress: Progress = SILENT) -> Path:
    """Write the report of a run that has just ended: its validation images or, without any, only its training."""
    return save_page(run.page_after_training(folder, progress), folder / FILE)


def _page(source: Path, split: str | None, images: Path | None, options: dict[str, int], progress: Progress) -> Page:
    planned = plan.find_plan(source)
    if planned is not None:
        return plan.plan_page(source, planned, images, progress=progress, **options)
    if (source / "config.yaml").is_file():
        return run.run_page(source, split, images, progress=progress, **options)
    if (source / predictions.TABLE).is_file():
        return predictions.predictions_page(source, images, progress=progress, **options)
    if (source / slides.TABLE).is_file() or (source / slides.STATE).is_file():
        return slides.slides_page(source, progress=progress, **options)
    if not source.exists():
        raise RunError(f"{source}: no such folder; give one that train, benchmark, study, predict or slide wrote")
    raise RunError(
        f"{source}: neither a run nor a benchmark, study, predictions or slides; give the folder that one of train, "
        "benchmark, study, predict and slide wrote"
    )
