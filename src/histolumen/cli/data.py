"""`histolumen data`: turn images into a manifest, or check one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from histolumen.data.manifest import Manifest

app = typer.Typer(help="Make a manifest from images and labels, or check one.", no_args_is_help=True)
Out = Annotated[Path, typer.Option("--out", help="Manifest to write (CSV).")]


@app.command()
def glas(
    source: Annotated[Path, typer.Argument(help="Folder of GlaS with Grade.csv, BMP or any lossless format.")], out: Out
) -> None:
    """GlaS (Warwick-QU) with the paper's split of 67 / 18 / 80 images."""
    from histolumen.data.glas import manifest_from_glas, paper_split

    manifest = manifest_from_glas(source)
    absent = len(paper_split()) - len(manifest.rows)
    if absent:
        typer.echo(f"note: {absent} of the {len(paper_split())} images of GlaS are not in {source}", err=True)
    _finish(manifest, out)


@app.command()
def folder(
    source: Annotated[Path, typer.Argument(help="Folder with CLASS/image or SPLIT/CLASS/image.")],
    out: Out,
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV with image, label [, mask, split, group] instead of class folders."),
    ] = None,
    group_pattern: Annotated[
        str | None, typer.Option(help="Regular expression; its first (...) in the path is the patient.")
    ] = None,
    valid: Annotated[float, typer.Option(help="Share of the images for validation.")] = 0.15,
    test: Annotated[float, typer.Option(help="Share of the images for the test.")] = 0.20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
) -> None:
    """Your own images. Splits are stratified by class and keep patients whole."""
    from histolumen.data.folder import SplitPlan, manifest_from_folder, manifest_from_table
    from histolumen.errors import DataError

    plan = SplitPlan(valid, test, seed)
    if labels is not None and group_pattern is not None:
        raise DataError("--group-pattern goes with class folders; give the patient as a column 'group' of the table")
    if labels is not None:
        _finish(manifest_from_table(source, labels, plan), out)
    else:
        _finish(manifest_from_folder(source, plan, group_pattern), out)


@app.command()
def synthetic(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the images to.")],
    out: Annotated[Path | None, typer.Option("--out", help="Manifest to write; else DIR/manifest.csv.")] = None,
    images: Annotated[int, typer.Option(min=6, help="How many images.")] = 120,
    size: Annotated[int, typer.Option(min=64, help="Side of the images in pixels.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same bytes.")] = 0,
) -> None:
    """H&E-like images with exact masks, benign or malignant in the glands only."""
    from histolumen.data.synthetic_set import write_synthetic_set
    from histolumen.engine.progress import track

    manifest = write_synthetic_set(directory, images, size, seed, lambda items: track(items, "drawing"))
    _finish(manifest, out or directory / "manifest.csv")


@app.command()
def camelyon16(
    slides: Annotated[Path, typer.Argument(help="Folder of slides: normal_NNN, tumor_NNN, test_NNN, or your own.")],
    annotations: Annotated[Path, typer.Argument(help="Folder of ASAP XML files, named as their slides.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for patches, masks and manifest.csv.")],
    valid: Annotated[float, typer.Option(help="Share of the training slides for validation.")] = 0.25,
    per_slide: Annotated[
        int | None, typer.Option(min=1, help="Most metastatic patches of one slide; all if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same bytes.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core if not given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and show what would be chosen.")] = False,
) -> None:
    """Camelyon16-P512: balanced patches of 512 px from whole slides, split by slide. Run again to go on.

    A slide without an XML is normal. Slides that cannot be used are named, the others go on; then the exit code is 3.
    """
    import os

    from histolumen.engine.progress import track
    from histolumen.errors import DataError
    from histolumen.slides.camelyon16 import SamplingPlan, sample_camelyon16

    plan = SamplingPlan(valid, per_slide, seed, workers or os.cpu_count() or 1)
    sample = sample_camelyon16(slides, annotations, out, plan, dry_run, track)
    for note in sample.notes:
        typer.echo(f"note: {note}", err=True)
    for failure in sample.failures.values():
        typer.echo(f"left out: {failure}", err=True)
    if dry_run:
        typer.echo(sample.table())
    elif sample.manifest.rows:
        _finish(sample.manifest, out / "manifest.csv")
    elif not sample.failures:
        raise DataError(f"{slides}: nothing to balance; slides of both classes are needed in a split")
    if sample.failures:
        raise typer.Exit(3)


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(help="Manifest to check.")],
    images: Annotated[Path | None, typer.Option(help="Where the images are, if they have moved.")] = None,
) -> None:
    """Decode every image and mask and list what is wrong."""
    from histolumen.data.check import check_manifest
    from histolumen.data.manifest import read_manifest
    from histolumen.engine.progress import track

    content = read_manifest(manifest, images)
    findings = check_manifest(content, lambda rows: track(list(rows), "checking"))
    typer.echo(content.summary())
    for warning in findings.warnings:
        typer.echo(f"note: {warning}")
    for problem in findings.problems:
        typer.echo(f"problem: {problem}")
    if findings.problems:
        typer.echo(f"{len(findings.problems)} problem(s) in {len(content.rows)} images")
        raise typer.Exit(2)
    typer.echo(f"all {len(content.rows)} images can be read")


def _finish(manifest: "Manifest", out: Path) -> None:
    manifest.write(out)
    typer.echo(manifest.summary())
    typer.echo(f"manifest: {out}")
