"""`histolumen figures`."""

from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.evaluate import BINARISE_HELP, Binarise, Split


def figures(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER",
            help="Folder of a run, a benchmark or a study. Studies of lambda, sigma and omega are drawn as one figure.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    split: Annotated[
        Split | None,
        typer.Option(help="For a run: split to evaluate.", show_default="test, or valid if there is no test image"),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="Number of images in each figure that shows some.")] = 6,
    binarise: Annotated[
        Binarise | None,
        typer.Option(help=BINARISE_HELP, show_default="as in the last table of the folder, else threshold"),
    ] = None,
) -> None:
    """Draw the paper's figures for a run, a benchmark or studies, as vector PDF and PNG."""
    from histolumen.extras import require

    require("study", "matplotlib")
    from histolumen.console import ConsoleProgress
    from histolumen.report.figures.draw import draw_all

    for path in draw_all(sources, out, split, images, binarise, ConsoleProgress()):
        typer.echo(path)
