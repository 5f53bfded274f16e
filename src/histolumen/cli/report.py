"""`histolumen report`, and the report that other commands write at their end."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.evaluate import Split

Report = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html into the folder at the end.")]


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|BENCHMARK|STUDY|PREDICTIONS|SLIDES",
            help="Folder that train, benchmark, study, predict or slide wrote.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default="report.html in the folder")
    ] = None,
    split: Annotated[
        Split | None,
        typer.Option(help="For a run: split to evaluate.", show_default="the first of valid, test, train with images"),
    ] = None,
    gallery: Annotated[
        int | None,
        typer.Option(min=1, help="Number of images in the gallery.", show_default="18; 6 where methods are compared"),
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
) -> None:
    """Write one HTML file with scores, curves and pictures, which opens without network and prints."""
    from histolumen.atomic import refuse_replacing
    from histolumen.console import ConsoleProgress
    from histolumen.report.html.write import write_report

    if out is not None:
        refuse_replacing(out, overwrite)
    path = write_report(source, out, split, images, gallery, ConsoleProgress())
    typer.echo(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def report_or_warn(write: Callable[[], Path], folder: Path) -> None:
    """Write a report at the end of another command, whose results must not be lost if that fails."""
    try:
        typer.echo(f"report: {write()}")
    except Exception as error:  # noqa: BLE001 - whatever it is, the work before it is done and kept
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        typer.echo(f"note: no report was written ({reason}); try again with: histolumen report {folder}", err=True)
