"""A page is one file: all text is escaped, only the package's own scripts may run, and nothing is loaded."""

import base64
import hashlib
import re

import pytest

from histolumen.report.html.content import (
    Axis,
    Bars,
    Card,
    Chart,
    Facts,
    Gallery,
    Matrix,
    Page,
    Picture,
    Section,
    Series,
    TableBlock,
    Text,
)
from histolumen.report.html.page import as_html, save_page
from histolumen.report.tables import Table

EVIL = "<script>alert(1)</script>\"'&"
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


@pytest.fixture(scope="module")
def hostile() -> str:
    """A page with a script in every place that can hold a name."""
    curve = Chart(EVIL, Axis(EVIL), Axis(EVIL), [Series(EVIL, [(0, 1), (1, 2)], names=[EVIL, EVIL])], EVIL)
    bars = Bars(EVIL, [EVIL], {EVIL: [1.0], "undefined": [None]}, EVIL, EVIL)
    card = Card(EVIL, (1, 1), [Picture(EVIL, PIXEL)], [EVIL], EVIL, "wrong")
    blocks = [
        Facts({EVIL: EVIL}),
        Text([EVIL], listed=True),
        TableBlock(Table(EVIL, [EVIL, "b"], [[EVIL, EVIL]], [EVIL])),
        Matrix(EVIL, [EVIL, "b"], [EVIL, "b"], [[3, 1], [0, 0]], EVIL),
        curve,
        bars,
        Gallery([card], EVIL, legend=[("heat", EVIL)]),
    ]
    return as_html(Page(EVIL, EVIL, EVIL, [Section(EVIL, blocks, EVIL)]))


def scripts(html: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)


def test_names_are_never_markup(hostile):
    assert "<script>alert" not in hostile
    assert "&lt;script&gt;alert(1)" in hostile
    assert r"\u003cscript\u003ealert(1)" in hostile  # in the data of the charts
    assert len(scripts(hostile)) == 3
    assert not any("alert(1)" in script for script in scripts(hostile))


def test_only_these_scripts_and_this_style_are_allowed(hostile):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', hostile).group(1)
    style = re.search(r"<style>(.*?)</style>", hostile, flags=re.DOTALL).group(1)
    for text in [*scripts(hostile), style]:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_nothing_is_referred_to_outside_the_file(hostile):
    assert re.findall(r'(?:src|href)="(?!data:|#)', hostile) == []
    assert "sourceMappingURL" not in hostile
    assert not re.search(r"url\(|@import", re.search(r"<style>(.*?)</style>", hostile, flags=re.DOTALL).group(1))
    assert "Permission is hereby granted" in hostile  # the licence of the charts travels with them


def test_every_chart_has_axis_titles_and_its_values_as_text(hostile):
    page = Page("Run", "r", "", [Section("S", [
        Chart("Loss", Axis("epoch"), Axis("loss"), [Series("total", [(1, 0.5), (2, 0.25)])]),
        Bars("Shares", ["0–10"], {"benign": [3.0], "malignant": [None]}, "share, %", "images"),
    ])])  # fmt: skip
    html = as_html(page)
    assert 'aria-label="Loss: loss over epoch of total."' in html
    assert html.count("Values as a table") == 2
    assert "<td>0.25</td>" in html
    assert "<td>--</td>" in html


def test_a_row_of_a_matrix_is_shown_in_shares(hostile):
    assert "75.0 %" in hostile
    assert "25.0 %" in hostile
    assert Matrix("", ["a"], ["a"], [[0]], "").share(0, 0) == 0  # a class that does not occur


def test_the_file_is_replaced_only_as_a_whole(tmp_path):
    path = save_page(Page("Run", "first", "", []), tmp_path / "sub" / "r.html")
    assert "<h1>first</h1>" in path.read_text()
    assert [file.name for file in path.parent.iterdir()] == ["r.html"]


def test_names_that_are_not_unicode_are_written_all_the_same(tmp_path):
    path = save_page(Page("Run", "caf\udce9", "", []), tmp_path / "r.html")
    assert r"<h1>caf\udce9</h1>" in path.read_text(encoding="utf-8")
