import csv
import html.parser
import io

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


def test_latex_escapes_what_latex_would_take_for_itself():
    text = as_latex(TABLE)
    assert r"B \& B & 7.25 & 12 \\" in text
    assert r"\textbf{50.00 $\pm$ 1.20}" in text
    assert r"time\_s" in text
    assert r"100 \% measured." in text
    assert r"\begin{tabular}{lrr}" in text


def test_text_is_aligned():
    lines = as_text(TABLE).splitlines()
    assert lines[2] == "method                 F1+  time_s"
    assert lines[4] == "A, the first  50.00 ± 1.20       3"
    assert lines[-1] == "100 % measured."


def test_all_four_files_are_written(tmp_path):
    assert {path.name for path in save_tables(TABLE, tmp_path / "new", "t")} == {"t.txt", "t.csv", "t.tex", "t.html"}
    assert all((tmp_path / "new" / f"t.{ending}").stat().st_size for ending in ("txt", "csv", "tex", "html"))
