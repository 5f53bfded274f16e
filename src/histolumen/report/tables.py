"""One table in four formats: text, CSV, LaTeX, HTML."""

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from histolumen.engine.checkpoint import write_text

_TEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
} | {character: "\\" + character for character in "&%$#_{}"}
_templates = Environment(
    loader=PackageLoader("histolumen.report"),
    autoescape=select_autoescape(["html"]),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_templates.filters["tex"] = lambda text: text.translate(str.maketrans(_TEX))


@dataclass(frozen=True)
class Table:
    """A table of formatted strings; the first column holds names, the others numbers.

    `bold` are the (row, column) of highlighted cells; `notes` are printed below the table.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    bold: frozenset[tuple[int, int]] = frozenset()


def save_tables(table: Table, folder: Path, name: str) -> list[Path]:
    """Write NAME.txt, .csv, .tex and .html."""
    texts = {"txt": as_text(table), "csv": as_csv(table), "tex": as_latex(table), "html": as_html(table)}
    paths = []
    for ending, text in texts.items():
        paths.append(folder / f"{name}.{ending}")
        write_text(paths[-1], text)
    return paths


def as_text(table: Table) -> str:
    """Aligned columns for a terminal."""
    grid = RichTable(box=box.ASCII_DOUBLE_HEAD)
    for number, column in enumerate(table.columns):
        grid.add_column(Text(column), justify="right" if number else "left", no_wrap=True)
    for row in table.rows:
        grid.add_row(*map(Text, row))  # as Text: brackets are intervals, not markup
    widest = sum(max(map(len, cells)) + 3 for cells in zip(table.columns, *table.rows, strict=True)) + 1
    console = Console(file=io.StringIO(), width=widest, color_system=None)
    with console.capture() as drawn:
        console.print(grid)
    return "\n".join([table.title, "", drawn.get().rstrip(), *table.notes, ""])


def as_csv(table: Table) -> str:
    """The table as CSV, without title and notes."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.columns, *table.rows])
    return buffer.getvalue()


def as_latex(table: Table) -> str:
    """A `table` for the booktabs package."""
    return _templates.get_template("table.tex").render(table=table)


def as_html(table: Table) -> str:
    """A self-contained HTML page."""
    return _templates.get_template("table.html").render(table=table)
