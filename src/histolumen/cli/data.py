"""`histolumen data`: create a manifest from images, or check one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from histolumen.data.manifest import Manifest

app = typer.Typer(help="Create a manifest from images and labels, or check one.", no_args_is_help=True)
Out = Annotated[Path, typer.Option("--out", help="Manifest to write (CSV).")]


@app.command()
def glas(
    source: Annotated[Path, typer.Argument(help="Folder of GlaS with Grade.csv, BMP or any lossless format.")], out: Out
) -> None:
    """GlaS (Warwick-QU) with the paper's split of 67 / 18 / 80 images."""
    from histolumen.data.sources.glas import manifest_from_glas, paper_split

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
        typer.Option(help="CSV with image, label [, mask, split, patient] instead of class folders."),
    ] = None,
    patient_pattern: Annotated[
        str | None, typer.Option(help="Regular expression whose first group in the path is the patient.")
    ] = None,
    valid: Annotated[float, typer.Option(help="Share of validation images.")] = 0.15,
    test: Annotated[float, typer.Option(help="Share of test images.")] = 0.20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
) -> None:
    """Your own images. Splits are stratified by class; all images of a patient are in one split."""
    from histolumen.data.sources.folder import SplitPlan, manifest_from_folder, manifest_from_table
    from histolumen.errors import DataError
    from histolumen.settings import from_options

    plan = from_options(SplitPlan, valid=valid, test=test, seed=seed)
    if labels is not None and patient_pattern is not None:
        raise DataError("--patient-pattern works with class folders only; add a column 'patient' to the table instead")
    if labels is not None:
        _finish(manifest_from_table(source, labels, plan), out)
    else:
        _finish(manifest_from_folder(source, plan, patient_pattern), out)


@app.command()
def synthetic(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the images to.")],
    out: Annotated[Path | None, typer.Option("--out", help="Manifest to write; default: DIR/manifest.csv.")] = None,
    images: Annotated[int, typer.Option(min=6, help="Number of images.")] = 120,
    size: Annotated[int, typer.Option(min=64, help="Side of the images in pixels.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same bytes.")] = 0,
    kind: Annotated[
        Literal["glands", "metastases"],
        typer.Option(help="glands: benign or malignant, in the glands only. metastases: lymph nodes without or with."),
    ] = "glands",
) -> None:
    """Synthetic H&E-like images with exact masks."""
    from histolumen.console import ConsoleProgress
    from histolumen.data.sources.synthetic import write_synthetic_set
    from histolumen.locking import exclusive

    with exclusive(directory):
        manifest = write_synthetic_set(directory, images, size, seed, ConsoleProgress(), kind)
        _finish(manifest, out or directory / "manifest.csv")


@app.command()
def camelyon16(
    slides: Annotated[Path, typer.Argument(help="Folder of slides: normal_NNN, tumor_NNN, test_NNN, or your own.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for patches, masks and manifest.csv.")],
    annotations: Annotated[
        Path | None,
        typer.Argument(help="Folder of ASAP XML files, named as their slides.", show_default="that of the slides"),
    ] = None,
    patches: Annotated[
        Literal["published", "sample"],
        typer.Option(help="The published patches, or new ones by the same protocol, for other slides too."),
    ] = "published",
    fold: Annotated[
        int | None, typer.Option(help="Published: fold for validation, 0 to 4.", show_default="0, the paper's split")
    ] = None,
    valid: Annotated[
        float | None, typer.Option(help="Sample: share of the training slides for validation.", show_default="0.2")
    ] = None,
    per_slide: Annotated[
        int | None, typer.Option(min=1, help="Sample: most metastatic patches of one slide.", show_default="all")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Sample: the same seed gives the same bytes.", show_default="0")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core if not given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the slides and count, but cut nothing.")] = False,
) -> None:
    """Camelyon16-P512: patches of 512 px and their masks from whole slides, split by slide. Run again to go on.

    Slides that cannot be used or are missing are named, the others are cut; then the exit code is 3.
    """
    import os

    from histolumen.console import ConsoleProgress
    from histolumen.data.sources.camelyon16.published import PublishedPlan, cut_published
    from histolumen.data.sources.camelyon16.sample import SamplingPlan, sample_camelyon16
    from histolumen.errors import ConfigError, DataError
    from histolumen.locking import exclusive
    from histolumen.settings import from_options

    options = {
        "published": {"fold": fold},
        "sample": {"valid": valid, "per_slide": per_slide, "seed": seed},
    }
    given = {
        mode: {name: value for name, value in block.items() if value is not None} for mode, block in options.items()
    }
    other = "sample" if patches == "published" else "published"
    if given[other]:
        option = "--" + next(iter(given[other])).replace("_", "-")
        raise ConfigError(f"{option} goes with --patches {other}; leave it out or give that")
    chosen = {**given[patches], "workers": workers or os.cpu_count() or 1}
    folders = (slides, annotations or slides, out)
    with exclusive(out):
        if patches == "published":
            result = cut_published(*folders, from_options(PublishedPlan, **chosen), dry_run, ConsoleProgress())
        else:
            result = sample_camelyon16(*folders, from_options(SamplingPlan, **chosen), dry_run, ConsoleProgress())
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    for problem in result.left_out:
        typer.echo(f"left out: {problem}", err=True)
    if dry_run or patches == "published":
        typer.echo(result.table())
    if not dry_run and result.manifest.rows:
        _finish(result.manifest, out / "manifest.csv")
    elif not dry_run and not result.left_out:
        raise DataError(f"{slides}: nothing to balance; slides of both classes are needed in a split")
    if result.left_out:
        raise typer.Exit(3)


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(help="Manifest to check.")],
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")] = None,
) -> None:
    """Decode every image and mask, and list the problems."""
    from histolumen.console import ConsoleProgress
    from histolumen.data.check import check_manifest
    from histolumen.data.manifest import read_manifest

    content = read_manifest(manifest, images)
    findings = check_manifest(content, ConsoleProgress())
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
