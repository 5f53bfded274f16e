"""`histolumen complexity`."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def complexity(
    size: Annotated[tuple[int, int], typer.Option(min=32, help="Height and width of the image.")] = (522, 775),
    repeats: Annotated[int, typer.Option(min=1, help="Timed predictions per method.")] = 5,
    time: Annotated[bool, typer.Option("--time/--no-time", help="Measure times; without, it takes seconds.")] = True,
    device: Annotated[str, typer.Option(help="Where to measure, for example cuda.")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="Write all values to this file; - is standard output.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table as text, CSV, LaTeX and HTML.")] = None,
) -> None:
    """Count parameters and measure the time per image of every method, beside the paper's values."""
    from dataclasses import asdict

    from histolumen.console import ConsoleProgress
    from histolumen.export.files import save_json, to_json
    from histolumen.report.complexity import complexity_table, measure_complexity
    from histolumen.report.tables import as_text, save_tables

    lines = measure_complexity(size, repeats if time else 0, device, ConsoleProgress())
    content = {"size": list(size), "device": device, "rows": [asdict(line) for line in lines]}
    table = complexity_table(lines, size, device)
    if json == Path("-"):
        sys.stdout.write(to_json(content) + "\n")
    else:
        typer.echo(as_text(table))
    if json is not None and json != Path("-"):
        save_json(content, json)
    if out is not None:
        typer.echo(f"written: {', '.join(str(path) for path in save_tables(table, out, 'complexity'))}", err=True)
