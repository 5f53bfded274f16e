"""The viewer in a real browser."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("playwright", reason="needs playwright")
from browser import CHROMIUM, LAPTOP, TABLET, browser, visit

from histolumen.engine.model import Model

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")

DROP = """async ([data, name]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/png" }));
  const send = (type) => document.body.dispatchEvent(
    new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  send("dragenter");
  await new Promise((resolve) => setTimeout(resolve, 50));
  const shown = !document.querySelector("#drop").hidden;
  send("drop");
  return shown;
}"""

INJECT = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = 1";
  document.body.append(script);
  document.body.insertAdjacentHTML("beforeend", '<img src=x onerror="window.ran = 1">');
}"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture
def viewer(chromium, address, tmp_path):
    with visit(chromium, address, tmp_path) as opened:
        yield opened
        assert opened.problems == []
        foreign = [url for url in opened.requests if not url.startswith((opened.address, "blob:", "data:"))]
        assert foreign == []


def middle(viewer):
    box = viewer.page.locator("#stage").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_an_item_opens_with_class_and_evidence(viewer):
    assert viewer.page.locator("#items .item").count() == 4
    assert viewer.text("#verdict").split()[1] in {"benign", "malignant"}
    assert viewer.page.locator("#answer progress").count() == 4  # two classes on X+ and on X-
    assert "/tiles/" in " ".join(viewer.requests)
    viewer.shoot("open")


def test_an_image_unlike_the_training_images_is_marked_in_list_and_panel(viewer):
    page = viewer.page
    noise = np.random.default_rng(0).integers(0, 256, (96, 96, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, format="PNG")
    assert page.evaluate(DROP, [base64.b64encode(buffer.getvalue()).decode(), "noise.png"])
    page.wait_for_function("() => document.querySelector('#answer b')?.textContent === 'noise.png'")
    page.wait_for_selector("ul#doubts")
    assert "unlike the training images: distance" in viewer.text("#doubts")
    badge = page.locator(".item", has_text="noise.png").locator(".badge.doubt")
    badge.wait_for()
    assert badge.inner_text() == "⚠ unlike training"
    assert "unlike the training images" in (badge.get_attribute("title") or "")
    page.select_option("#filter", "warned")
    assert "noise.png" in page.locator("#items").inner_text()
    page.select_option("#sort", "unlike")
    assert "noise.png" in page.locator("#items .item").first.inner_text()
    viewer.shoot("unlike")


def test_zoom_and_neighbours_by_keyboard_and_buttons(viewer):
    bar = viewer.text("#scale-text")
    viewer.press("+", "+", "+")
    viewer.page.wait_for_function("text => document.querySelector('#scale-text').textContent !== text", arg=bar)
    viewer.press("0")
    viewer.page.wait_for_function("text => document.querySelector('#scale-text').textContent === text", arg=bar)
    x, y = middle(viewer)
    viewer.page.mouse.move(x, y)
    for _ in range(6):
        viewer.page.mouse.wheel(0, -120)
    viewer.page.wait_for_function("text => document.querySelector('#scale-text').textContent !== text", arg=bar)
    viewer.shoot("zoomed")
    first = viewer.text("#answer b")
    viewer.press("ArrowRight")
    viewer.page.wait_for_function("name => document.querySelector('#answer b').textContent !== name", arg=first)
    viewer.page.click("#previous")
    viewer.page.wait_for_function("name => document.querySelector('#answer b').textContent === name", arg=first)


def test_every_layer_changes_the_picture(viewer):
    viewer.press("2")
    nothing = viewer.painted()
    for key, layer in enumerate(("heat", "outline", "plus", "minus", "uncertainty", "truth"), start=1):
        viewer.press(str(key))
        assert viewer.page.locator(f"#layer-{layer}").get_attribute("aria-pressed") == "true"
        assert viewer.painted() > nothing, layer
        viewer.shoot(f"layer-{layer}")
        viewer.press(str(key))
    assert viewer.painted() == nothing
    viewer.press("3", "4")
    viewer.page.wait_for_selector("#pane-1 canvas.overlay")
    assert viewer.page.locator(".pane-title:visible").all_inner_texts() == ["X+ foreground", "X− background"]
    viewer.shoot("side-by-side")


def test_the_threshold_changes_the_outline_at_once(viewer):
    areas = []
    for value in (10, 50, 90):
        viewer.page.locator("#threshold").fill(str(value))
        areas.append((float(viewer.text("#area")), viewer.painted()))
    assert areas[0][0] > areas[1][0] > areas[2][0]
    assert len({painted for _, painted in areas}) == 3
    assert not any("threshold" in url for url in viewer.requests)  # computed in the browser
    viewer.shoot("threshold")


def test_a_dropped_image_is_predicted(viewer, pictures):
    image = next((pictures / "images").glob("*.png"))
    data = base64.b64encode(image.read_bytes()).decode()
    assert viewer.page.evaluate(DROP, [data, "dropped.png"])
    viewer.page.wait_for_function("() => document.querySelector('#answer b')?.textContent === 'dropped.png'")
    viewer.page.wait_for_selector("#verdict")
    assert viewer.page.locator("#items .item").count() == 5
    viewer.shoot("dropped")
    viewer.page.evaluate(DROP, [base64.b64encode(b"no image").decode(), "broken.png"])
    viewer.page.wait_for_function("() => document.querySelector('#status').textContent.includes('not an image')")
    viewer.problems.clear()  # the browser logs the refused request


def test_an_image_without_tissue_is_shown_as_such(chromium, make_app, runs, pictures, tmp_path, serving):
    import dataclasses

    remove = runs[0].model.config.model_copy(
        update={"images": runs[0].model.config.images.model_copy(update={"glass": "remove"})}
    )
    glass = Model(runs[0].model.method, runs[0].model.classes, remove)
    for image in (pictures / "images").glob("*.png"):
        pixels = np.random.default_rng(0).integers(244, 256, (64, 64, 1), np.uint8).repeat(3, axis=2)
        Image.fromarray(pixels).save(image)
    with (
        serving(make_app([dataclasses.replace(runs[0], model=glass)])) as address,
        visit(chromium, address, tmp_path) as viewer,
    ):
        assert "no tissue" in viewer.text("#verdict")
        viewer.page.locator(".badge", has_text="no tissue").first.wait_for()
        assert viewer.problems == []


def test_a_correction_is_drawn_and_saved_beside_the_image(viewer, pictures):
    viewer.press("b")
    viewer.page.wait_for_function("() => document.querySelector('#brush-note').textContent !== ''")
    viewer.page.click("#brush-erase")
    viewer.page.locator("#brush-size").fill("120")
    x, y = middle(viewer)
    before = viewer.painted()
    viewer.page.mouse.move(x - 200, y - 100)
    viewer.page.mouse.down()
    viewer.page.mouse.move(x + 200, y + 100, steps=6)
    viewer.page.mouse.up()
    erased = viewer.painted()
    assert erased != before
    viewer.page.click("#brush-undo")
    assert viewer.painted() == before
    viewer.page.click("#brush-add")
    viewer.page.mouse.move(x - 100, y)
    viewer.page.mouse.down()
    viewer.page.mouse.move(x + 100, y, steps=6)
    viewer.page.mouse.up()
    viewer.shoot("brush")
    viewer.page.click("#brush-save")
    viewer.page.wait_for_selector("#download-correction")
    [saved] = (pictures / "images").glob("*_corrected.png")
    assert Image.open(saved).size == Image.open(saved.with_name(saved.name.replace("_corrected", ""))).size
    assert json.loads(saved.with_suffix(".geojson").read_text())["features"]
    viewer.shoot("corrected")


def test_regions_are_downloaded_as_geojson(viewer):
    with viewer.page.expect_download() as download:
        viewer.page.click("#download-geojson")
    content = json.loads(Path(download.value.path()).read_text())
    assert content["type"] == "FeatureCollection"
    assert download.value.suggested_filename.endswith(".geojson")


def test_a_length_is_measured(viewer):
    viewer.press("m")
    x, y = middle(viewer)
    viewer.page.mouse.move(x, y)
    viewer.page.mouse.down()
    viewer.page.mouse.move(x + 120, y, steps=3)
    viewer.page.mouse.up()
    viewer.page.wait_for_function("() => /length: [0-9.]+ µm/.test(document.querySelector('#status').textContent)")
    viewer.shoot("measure")
    viewer.press("Escape")
    assert viewer.page.locator("#tool-surface").is_hidden()


def test_two_runs_are_compared_with_a_curtain(viewer):
    viewer.press("c")
    viewer.page.wait_for_selector("#curtain:visible")
    assert viewer.text("#curtain-right").startswith("copy")
    x, y = middle(viewer)
    viewer.page.mouse.move(x, y)
    viewer.page.mouse.down()
    viewer.page.mouse.move(x + 150, y, steps=3)
    viewer.page.mouse.up()
    assert int(viewer.page.locator("#curtain").get_attribute("aria-valuenow")) > 60
    viewer.shoot("curtain")


def test_filter_and_sort(viewer):
    viewer.page.wait_for_function(
        "() => [...document.querySelectorAll('.item')].filter((i) => /0[.][0-9]{2}/.test(i.textContent)).length >= 3"
    )
    viewer.page.locator("#sort").select_option("unsure")
    first = viewer.page.locator("#items .item").first.inner_text()
    assert "waiting" not in first
    viewer.page.locator("#filter").select_option("slide")
    assert viewer.page.locator("#items .item").count() == 1


def test_a_slide_is_zoomed_and_predicted_on_request(viewer):
    viewer.page.locator("#items .item", has_text="glands.tif").click()
    viewer.page.wait_for_selector("#predict-slide")
    assert "µm" in viewer.text("#scale-text")
    viewer.shoot("slide")
    viewer.page.click("#predict-slide")
    viewer.page.wait_for_selector("#verdict")
    viewer.press("1")
    assert viewer.painted() > 1000
    viewer.shoot("slide-predicted")


def test_a_failed_slide_is_predicted_again_without_a_restart(viewer, slides):
    slide = slides / "glands.tif"
    content = slide.read_bytes()
    viewer.page.locator("#items .item", has_text="glands.tif").click()
    viewer.page.wait_for_selector("#predict-slide")
    slide.write_bytes(b"damaged for now")
    viewer.page.click("#predict-slide")
    viewer.page.wait_for_selector("#predict-again")
    viewer.shoot("failed")
    slide.write_bytes(content)
    viewer.page.click("#predict-again")
    viewer.page.wait_for_selector("#verdict")
    viewer.problems.clear()  # the browser logs the refused request


def test_nothing_on_the_pages_violates_the_content_security_policy(chromium, address, tmp_path):
    report = "document.addEventListener('securitypolicyviolation', (e) => console.error('CSP ' + e.violatedDirective))"
    with visit(chromium, address, tmp_path) as viewer:
        viewer.page.add_init_script(report)
        viewer.page.goto(f"{address}/docs")
        viewer.page.locator("code", has_text="/api/predict").wait_for()
        viewer.page.goto(address)
        viewer.page.wait_for_selector("#verdict")
        viewer.press("1", "2", "3", "4", "c", "m", "b", "?")
        viewer.page.wait_for_timeout(300)
        assert viewer.problems == []
        viewer.page.evaluate(INJECT)
        viewer.page.wait_for_timeout(300)
        assert viewer.page.evaluate("() => window.ran") is None  # and the policy is what forbids it:
        assert any("CSP script-src" in line for line in viewer.problems)


@pytest.mark.parametrize("size", [LAPTOP, TABLET], ids=["laptop", "tablet"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_on_laptop_and_tablet(chromium, address, tmp_path, size, scheme):
    with visit(chromium, address, tmp_path, size, scheme) as viewer:
        viewer.press("1")
        viewer.shoot(f"{scheme}-{size[0]}")
        assert viewer.problems == []
        body = viewer.page.evaluate("() => document.documentElement.scrollWidth")
        assert body <= size[0]  # nothing is cut off at the right
        assert (viewer.page.locator("#stage").bounding_box() or {})["height"] > 300


def test_the_api_page_lists_the_routes(viewer):
    viewer.page.goto(f"{viewer.address}/docs")
    viewer.page.locator("code", has_text="/api/predict").wait_for()
