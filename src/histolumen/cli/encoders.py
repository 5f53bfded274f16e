"""`histolumen encoders`: lists the known encoders and the source of their weights."""

import typer


def encoders() -> None:
    """List the encoders of the catalogue; any other timm network works as well.

    Use one with `--set backbone.name=NAME`, a downloaded weights file with `--set backbone.weights=FILE`.
    """
    from histolumen.encoders.listing import HEADINGS, rows

    lines = [HEADINGS, *rows()]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
