"""One table, four ways to write it: text, CSV, LaTeX, HTML."""

import csv
import html
import io
from dataclasses import dataclass, field
from pathlib import Path

from histolumen.engine.checkpoint import write_text


@dataclass(frozen=True)
class Table:
    """Cells are strings as they are to be read; the first column holds names, the others figures.

    `bold` are (row, column) of cells to stand out; `notes` are sentences below.
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
    lines = [table.columns, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]

    def aligned(line: list[str]) -> str:
        first, *figures = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        return "  ".join([first.strip().ljust(widths[0]), *figures]).rstrip()

    rule = "-" * len(aligned(["x" * width for width in widths]))
    parts = [table.title, "", aligned(table.columns), rule, *map(aligned, table.rows), rule, *table.notes]
    return "\n".join(parts) + "\n"


def as_csv(table: Table) -> str:
    """Header and rows."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([table.columns, *table.rows])
    return buffer.getvalue()


def as_latex(table: Table) -> str:
    """A `table` for the booktabs package."""

    def line(cells: list[str], number: int | None = None) -> str:
        shown = [
            f"\\textbf{{{_tex(cell)}}}" if (number, column) in table.bold else _tex(cell)
            for column, cell in enumerate(cells)
        ]
        return "    " + " & ".join(shown) + r" \\"

    body = [line(row, number) for number, row in enumerate(table.rows)]
    caption = _tex(" ".join([table.title + ".", *table.notes]))
    return "\n".join(
        [
            r"\begin{table}",
            f"  \\caption{{{caption}}}",
            r"  \centering",
            f"  \\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"    \toprule",
            line(table.columns),
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def as_html(table: Table) -> str:
    """A page of its own, without anything from elsewhere."""

    def cells(line: list[str], tag: str, number: int | None = None) -> str:
        marks = [' class="best"' if (number, column) in table.bold else "" for column in range(len(line))]
        return "".join(f"<{tag}{mark}>{html.escape(cell)}</{tag}>" for cell, mark in zip(line, marks, strict=True))

    rows = "\n".join(f"<tr>{cells(row, 'td', number)}</tr>" for number, row in enumerate(table.rows))
    notes = "\n".join(f"<p>{html.escape(note)}</p>" for note in table.notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(table.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(table.title)}</h1>
<div class="wide"><table>
<thead><tr>{cells(table.columns, "th")}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
{notes}
</body>
</html>
"""


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.8rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #1a1a1a; font-weight: 600; }
tbody tr:nth-child(even) { background: #f3f4f6; }
.best { font-weight: 700; }
p { color: #444; max-width: 50rem; }
"""


_TEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
} | {character: "\\" + character for character in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)
