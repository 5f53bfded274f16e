import csv
import html.parser
import io
from dataclasses import replace

from histolumen.report.tables import Table, as_csv, as_html, as_latex, as_text, save_tables

TABLE = Table(
    "Title & <co>",
    ["method", "F1+", "time_s"],
    [["A, the first", "50.00 ± 1.20", "3"], ["B & B", "7.25", "12"]],
    ["100 % measured."],
    frozenset({(0, 1)}),
)


class Cells(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.cells, self.tag, self.bold = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        if ("class", "best") in attrs:
            self.bold.append(len(self.cells))

    def handle_data(self, data):
        if self.tag in {"td", "th"} and data.strip():
            self.cells.append(data)


def test_csv_reads_back():
    assert list(csv.reader(io.StringIO(as_csv(TABLE)))) == [TABLE.columns, *TABLE.rows]


def test_html_holds_every_cell_once_and_marks_the_best():
    found = Cells(as_html(TABLE))
    assert found.cells == [*TABLE.columns, *TABLE.rows[0], *TABLE.rows[1]]
    assert [found.cells[i] for i in found.bold] == ["50.00 ± 1.20"]
    assert "<co>" not in as_html(TABLE)


def test_latex_special_characters_are_escaped():
    text = as_latex(TABLE)
    assert r"B \& B & 7.25 & 12 \\" in text
    assert r"\textbf{50.00 $\pm$ 1.20}" in text
    assert r"time\_s" in text
    assert r"100 \% measured." in text
    assert r"\begin{tabular}{lrr}" in text


def test_text_is_aligned_and_complete():
    text = as_text(replace(TABLE, rows=[*TABLE.rows, ["C", "1.00 [0.5, 1.5]", ""]]))
    lines = text.splitlines()
    assert lines[0] == TABLE.title
    assert lines[3] == "| method       |             F1+ | time_s |"
    assert lines[5] == "| A, the first |    50.00 ± 1.20 |      3 |"
    assert lines[7] == "| C            | 1.00 [0.5, 1.5] |        |"  # brackets are not markup
    assert lines[-1] == "100 % measured."


def test_wide_tables_are_not_cut():
    wide = Table("t", [f"column {k}" for k in range(40)], [["x" * 30] * 40])
    assert as_text(wide).count("x" * 30) == 40


def test_all_four_files_are_written(tmp_path):
    assert {path.name for path in save_tables(TABLE, tmp_path / "new", "t")} == {"t.txt", "t.csv", "t.tex", "t.html"}
    assert all((tmp_path / "new" / f"t.{ending}").stat().st_size for ending in ("txt", "csv", "tex", "html"))
