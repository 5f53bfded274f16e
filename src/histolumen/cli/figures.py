"""`histolumen figures`."""

from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.evaluate import Split


def figures(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run, a benchmark or a study.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    split: Annotated[
        Split | None,
        typer.Option(help="For a run: split to evaluate.", show_default="test, or valid if there is no test image"),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="Number of images in the qualitative figure.")] = 6,
) -> None:
    """Draw the paper's figures for a run, a benchmark or a study, as vector PDF and PNG."""
    from histolumen.extras import require

    require("study", "matplotlib")
    from histolumen.console import ConsoleProgress
    from histolumen.report.figures.draw import draw_all

    for path in draw_all(source, out, split, images, ConsoleProgress()):
        typer.echo(path)
