"""`histolumen complexity`."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def complexity(
    size: Annotated[tuple[int, int], typer.Option(min=32, help="Height and width of the image.")] = (522, 775),
    repeats: Annotated[int, typer.Option(min=1, help="Timed predictions per method.")] = 5,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file; - is standard output.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table as text, CSV, LaTeX and HTML.")] = None,
) -> None:
    """Parameters and time per image of every method, the paper's column beside ours."""
    from dataclasses import asdict

    from histolumen.engine.progress import track
    from histolumen.export.files import save_json, to_json
    from histolumen.report.complexity import complexity_table, measure_complexity
    from histolumen.report.tables import as_text, save_tables

    lines = measure_complexity(size, repeats, lambda rounds: track(rounds, "timing"))
    content = {"size": list(size), "rows": [asdict(line) for line in lines]}
    table = complexity_table(lines, size)
    if json == Path("-"):
        sys.stdout.write(to_json(content) + "\n")
    else:
        typer.echo(as_text(table))
    if json is not None and json != Path("-"):
        save_json(content, json)
    if out is not None:
        typer.echo(f"written: {', '.join(str(path) for path in save_tables(table, out, 'complexity'))}", err=True)
