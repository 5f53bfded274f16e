"""`histolumen figures`."""

from pathlib import Path
from typing import Annotated

import typer


def figures(
    source: Annotated[
        Path, typer.Argument(metavar="RUN_OR_BENCHMARK", help="Folder of a run, a benchmark or a study.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    split: Annotated[str | None, typer.Option(help="For a run: what is measured; else test, or valid.")] = None,
    images: Annotated[int, typer.Option(min=1, help="Rows of the qualitative grid.")] = 6,
) -> None:
    """The paper's figures from what was run: vector PDF and PNG."""
    from histolumen.extras import require

    require("study", "matplotlib", "optuna")
    from histolumen.report.figures.draw import draw_all

    for path in draw_all(source, out, split, images, lambda line: typer.echo(f"note: {line}")):
        typer.echo(path)
