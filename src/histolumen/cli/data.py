"""`histolumen data`: create a manifest from images, or check one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from histolumen.data.manifest import Manifest

app = typer.Typer(help="Create a manifest from images and labels, or check one.", no_args_is_help=True)
Out = Annotated[Path, typer.Option("--out", help="Manifest to write (CSV).")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file with another content.")]
LEFT_OUT = 3  # exit code: the result is written, but something was left out


@app.command()
def glas(
    source: Annotated[Path, typer.Argument(help="Folder of GlaS with Grade.csv, BMP or any lossless format.")],
    out: Out,
    overwrite: Overwrite = False,
) -> None:
    """GlaS (Warwick-QU) with the paper's split of 67 / 18 / 80 images."""
    from histolumen.data.sources.glas import manifest_from_glas, paper_split

    manifest = manifest_from_glas(source)
    absent = len(paper_split()) - len(manifest.rows)
    if absent:
        typer.echo(f"note: {absent} of the {len(paper_split())} images of GlaS are not in {source}", err=True)
    _finish(manifest, out, overwrite)


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
    overwrite: Overwrite = False,
) -> None:
    """Your own images. Splits are stratified by class; all images of a patient are in one split.

    Files and folders that cannot be read are listed and left out; then the exit code is 3.
    """
    from histolumen.console import ConsoleProgress
    from histolumen.data.sources.folder import SplitPlan, manifest_from_folder, manifest_from_table
    from histolumen.errors import DataError, first_few
    from histolumen.settings import from_options

    plan = from_options(SplitPlan, valid=valid, test=test, seed=seed)
    if labels is not None and patient_pattern is not None:
        raise DataError("--patient-pattern works with class folders only; add a column 'patient' to the table instead")
    if labels is not None:
        _finish(manifest_from_table(source, labels, plan), out, overwrite)
        return
    left_out: list[str] = []

    class Listing(ConsoleProgress):
        def message(self, text: str) -> None:
            left_out.append(text)

    _finish(manifest_from_folder(source, plan, patient_pattern, Listing()), out, overwrite)
    for line in first_few(left_out):
        typer.echo(line, err=True)
    if left_out:
        raise typer.Exit(LEFT_OUT)


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
    glass: Annotated[
        float, typer.Option(min=0, max=1, help="Share of images that show bare glass beyond the edge of the section.")
    ] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Synthetic H&E-like images with exact masks."""
    from histolumen.atomic import refuse_replacing
    from histolumen.console import ConsoleProgress
    from histolumen.data.sources.synthetic import write_synthetic_set
    from histolumen.locking import exclusive

    if out is not None:
        refuse_replacing(out, overwrite)  # before anything is drawn
    with exclusive(directory):
        progress = ConsoleProgress()
        manifest = write_synthetic_set(directory, images, size, seed, progress, kind, glass=glass, overwrite=overwrite)
        _finish(manifest, out or directory / "manifest.csv", overwrite)


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
    overwrite: Overwrite = False,
) -> None:
    """Camelyon16-P512: patches of 512 px and their masks from whole slides, split by slide. Run again to go on.

    Slides that cannot be used or are missing are named, the others are cut; then the exit code is 3.
    """

    from histolumen.atomic import remove_abandoned
    from histolumen.console import ConsoleProgress
    from histolumen.cores import read_cores
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
    chosen = {**given[patches], "workers": workers or read_cores().threads}
    folders = (slides, annotations or slides, out)
    with exclusive(out):
        remove_abandoned(out, below=True)
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
        _finish(result.manifest, out / "manifest.csv", overwrite or _only_adds(result.manifest, out / "manifest.csv"))
    elif not dry_run and not result.left_out:
        raise DataError(f"{slides}: nothing to balance; slides of both classes are needed in a split")
    if result.left_out:
        raise typer.Exit(LEFT_OUT)


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(help="Manifest to check.")],
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")] = None,
) -> None:
    """Decode every image and mask; list the problems, and the images with bare glass beside the tissue."""
    from histolumen.console import ConsoleProgress
    from histolumen.data.check import check_manifest
    from histolumen.data.manifest import read_manifest
    from histolumen.errors import first_few

    content = read_manifest(manifest, images)
    findings = check_manifest(content, ConsoleProgress())
    typer.echo(content.summary())
    for line in first_few(findings.tissue_lines()):
        typer.echo(line)
    for warning in findings.warnings:
        typer.echo(f"note: {warning}")
    for problem in first_few(findings.problems):
        typer.echo(f"problem: {problem}")
    if findings.problems:
        typer.echo(f"{len(findings.problems)} problem(s) in {len(content.rows)} images")
        if len(findings.problems) >= len(content.rows):
            typer.echo(f"none can be used: if the images are not in {content.root}, give --images FOLDER")
        raise typer.Exit(2)
    typer.echo(f"all {len(content.rows)} images can be read")


def _finish(manifest: "Manifest", out: Path, overwrite: bool) -> None:
    from histolumen.data.check import split_notes

    manifest.write(out, overwrite=overwrite)
    typer.echo(manifest.summary())
    typer.echo(f"manifest: {out}")
    for note in split_notes(manifest):
        typer.echo(f"note: {note}", err=True)


def _only_adds(manifest: "Manifest", out: Path) -> bool:
    """Whether a manifest has all rows of the one that an earlier call wrote: nothing that was edited is lost."""
    from histolumen.data.manifest import read_manifest
    from histolumen.errors import DataError

    try:
        return set(read_manifest(out).rows) <= set(manifest.rows)
    except DataError:
        return False
