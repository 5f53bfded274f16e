import json

import pytest

from commands import histolumen
from histolumen.report.complexity import build_row, complexity_table, measure_complexity
from histolumen.report.rows import ROWS
from histolumen.report.tables import as_text


@pytest.mark.parametrize("row", [row for row in ROWS if row.parameters], ids=lambda row: row.name)
def test_parameters_equal_the_papers(row):
    assert sum(p.numel() for p in build_row(row).parameters()) == row.parameters


def test_the_command_prints_the_papers_ten_rows():
    result = histolumen("complexity", "--no-time", "--json", "-")
    rows = json.loads(result.stdout)["rows"]
    papers = {row["name"]: (row["parameters"], row["paper_parameters"]) for row in rows if row["paper_parameters"]}
    assert len(papers) == 10
    assert all(ours == theirs for ours, theirs in papers.values())
    assert {row["seconds"] for row in rows} == {None}


def test_the_table_marks_the_papers_columns():
    lines = measure_complexity((32, 32), repeats=1)
    text = as_text(complexity_table(lines, (32, 32)))
    assert "paper: #pModel" in text
    assert "not measured" in text
    assert all(line.seconds > 0 for line in lines)
