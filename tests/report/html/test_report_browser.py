"""A report in a real browser, opened as a file."""

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="needs playwright")
from browser import CHROMIUM, LAPTOP, TABLET, browser

from histolumen.report.html.write import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")
INK = """canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) colours.add(data.slice(i, i + 3).join());
  return [...colours];
}"""  # all opaque colours of a chart


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(tiny_run, tmp_path_factory) -> Path:
    """The report of the tiny run."""
    return write_report(tiny_run, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(params=[("light", LAPTOP), ("dark", TABLET)], ids=["light laptop", "dark tablet"])
def page(chromium, report, request):
    """The open page; whatever it logs or requests besides itself is an error."""
    scheme, (width, height) = request.param
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened = context.new_page()
    requests, problems = [], []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda line: problems.append(line.text))
    opened.goto(report.as_uri())
    yield opened
    assert problems == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    context.close()


def test_everything_is_drawn_and_nothing_cut_off(page):
    canvases = page.locator("canvas[data-chart]")
    assert canvases.count() >= 6
    for number in range(canvases.count()):
        assert len(canvases.nth(number).evaluate(INK)) > 20  # axes, text and curves
    assert page.evaluate("() => [...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_the_slider_fades_all_pictures(page):
    card = page.locator(".card").first
    shown = {}
    for position in (0, 0.5, 1, 2, 3):
        page.locator(".gallery .fade").evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(position)
        )
        shown[position] = card.locator(".stack").screenshot()
    assert len(set(shown.values())) == 5
    assert page.locator(".stops button[aria-pressed=true]").inner_text() == "errors"
    page.locator(".stops button", has_text="image").first.click()
    assert card.locator(".stack").screenshot() == shown[0]


def test_a_picture_is_enlarged_and_the_next_one_follows(page):
    page.locator(".card .enlarge").first.click()
    dialog = page.locator("dialog#enlarged")
    first = dialog.locator("#enlarged-title").inner_text()
    assert first == page.locator(".card figcaption b").first.inner_text()
    dialog.locator(".stops button", has_text="heat map").click()
    assert page.locator(".gallery .stops button[aria-pressed=true]").inner_text() == "heat map"  # one state
    page.locator("dialog [data-step='1']").click()
    assert dialog.locator("#enlarged-title").inner_text() != first
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_values_are_there_as_text(page):
    summary = page.locator("details.values summary").first
    summary.click()
    assert page.locator("details.values table").first.is_visible()


def test_paper_is_light_and_shows_every_layer(page):
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("() => getComputedStyle(document.body).color") == "rgb(33, 29, 42)"
    ink = page.locator("canvas[data-chart]").first.evaluate(INK)
    assert "33,29,42" in ink  # axis titles are as dark as the text, in dark mode too
    layers = page.locator(".card").first.locator(".layer")
    assert [layers.nth(k).is_visible() for k in range(4)] == [True] * 4
    assert not page.locator(".gallery .controls").is_visible()
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")


def test_without_scripts_the_layers_stand_side_by_side(chromium, report):
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(report.as_uri())
    layers = opened.locator(".card").first.locator(".layer")
    boxes = [layers.nth(number).bounding_box() for number in range(4)]
    assert len({(box["x"], box["y"]) for box in boxes}) == 4
    context.close()
