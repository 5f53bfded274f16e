"""The API: items, tiles, predictions equal to `histolumen predict`, corrections."""

import base64
import io
import json

import numpy as np
import pytest
from geojson_pydantic import FeatureCollection
from PIL import Image

from histolumen.data.image import read_mask


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def opened(response):
    return np.asarray(Image.open(io.BytesIO(response.content)))


@pytest.fixture
def items(client):
    return {item["name"]: item for item in client.get("/api/items").json()["items"]}


@pytest.fixture
def image(items, pictures):
    item = next(item for item in items.values() if item["kind"] == "image")
    return item | {"path": pictures / item["name"]}


def predicted(client, item, run="0"):
    for _ in range(60):
        response = client.post(f"/api/items/{item['id']}/predictions/{run}")
        if response.status_code != 202:
            return response
    raise AssertionError("no prediction")


def test_items_have_labels_and_no_paths(client, items, pictures, tiny_manifest):
    assert len(items) == 4
    assert {item["label"] for item in items.values()} == {"benign", "malignant", ""}
    assert str(pictures) not in client.get("/api/items").text
    [run] = client.get("/api/items").json()["runs"]
    assert run["classes"] == ["benign", "malignant"]
    assert run["method"] == "maxmin"


def test_the_detail_of_an_item_describes_its_tiles(client, items, image):
    detail = client.get(f"/api/items/{image['id']}").json()
    assert (detail["width"], detail["height"], detail["has_truth"]) == (64, 64, True)
    url = f"/api/items/{image['id']}/tiles/{detail['max_level']}"
    tile = opened(client.get(f"{url}/0_0.jpg"))
    assert np.abs(tile.astype(int) - np.asarray(Image.open(image["path"]))).mean() < 4  # JPEG
    assert client.get(f"{url}/1_0.jpg").status_code == 404
    assert client.get(f"{url}/x_0.jpg").status_code == 422
    assert opened(client.get(f"/api/items/{image['id']}/thumbnail.jpg")).shape == (64, 64, 3)


def test_the_truth_is_the_mask_file(client, image, tiny_manifest):
    truth = opened(client.get(f"/api/items/{image['id']}/truth.png"))
    row = next(row for row in tiny_manifest.rows if row.image == image["name"])
    assert np.array_equal(truth > 0, read_mask(tiny_manifest.mask_path(row), (64, 64)))


def test_a_prediction_equals_predict(client, image, runs):
    expected = runs[0].model.predict(image["path"])
    found = predicted(client, image).json()
    assert found["record"] == expected.record()
    assert found["probabilities"] == expected.probabilities
    assert found["on_foreground"] == pytest.approx(expected.probabilities, abs=1e-5)
    url = f"/api/items/{image['id']}/predictions/0"
    assert np.array_equal(opened(client.get(f"{url}/mask.png")) > 0, expected.mask)
    assert np.array_equal(opened(client.get(f"{url}/mask.png?threshold=0.7")) > 0, expected.soft_mask >= 0.7)
    assert np.array_equal(opened(client.get(f"{url}/overlay.png")), np.asarray(expected.overlay()))
    assert np.abs(opened(client.get(f"{url}/soft_mask.png")) - 255 * expected.soft_mask).max() <= 0.51
    assert client.get(f"{url}/regions.geojson").json() == json.loads(json.dumps(expected.to_geojson()))
    assert client.get(f"{url}/mask.png?threshold=1.5").status_code == 422


def test_the_list_gets_the_predictions_of_all_images_in_the_background(client):
    for _ in range(200):
        content = client.get("/api/items").json()
        if content["predicted"] == content["to_predict"]:
            break
        import time

        time.sleep(0.05)
    by_kind = {item["kind"]: item["predictions"] for item in content["items"]}
    assert by_kind["image"]["0"]["label"] in {"benign", "malignant"}
    assert by_kind["slide"] == {}  # only on request: it may take long


def test_a_slide_is_predicted_on_request(client, items, runs, slides):
    slide = items["glands.tif"]
    url = f"/api/items/{slide['id']}/predictions/0"
    assert client.get(f"{url}/soft_mask.png").status_code == 409
    found = predicted(client, slide).json()
    expected = runs[0].model.predict_slide(slides / "glands.tif")
    assert found["record"] == expected.record() | {"slide": found["record"]["slide"]}
    assert np.array_equal(opened(client.get(f"{url}/soft_mask.png")), expected.heat)
    detail = client.get(f"/api/items/{slide['id']}").json()
    assert detail["mpp"] == pytest.approx(0.5, abs=1e-3)
    assert opened(client.get(f"{url}/overlay.png")).shape[2] == 3


@pytest.mark.parametrize("mask", [False, True])
def test_the_programs_route_equals_predict(client, image, runs, mask):
    expected = runs[0].model.predict(image["path"])
    answer = client.post(f"/api/predict?mask={mask}", content=image["path"].read_bytes()).json()
    assert answer["record"] == expected.record()
    if mask:
        decoded = Image.open(io.BytesIO(base64.b64decode(answer["mask_png"])))
        assert np.array_equal(np.asarray(decoded) > 0, expected.mask)
    else:
        assert answer["mask_png"] is None
    assert client.post("/api/predict?run=7", content=b"x").status_code == 404


def test_a_correction_is_saved_beside_the_image(client, image, pictures):
    predicted(client, image)
    drawn = np.zeros((64, 64), np.uint8)
    drawn[10:30, 20:50] = 255
    url = f"/api/items/{image['id']}/correction"
    answer = client.put(f"{url}?run=0", content=png(drawn))
    stem = image["path"].stem
    assert answer.json() == {"files": [f"{stem}_corrected.png", f"{stem}_corrected.geojson"]}
    saved = image["path"].with_name(f"{stem}_corrected.png")
    assert np.array_equal(np.asarray(Image.open(saved)), drawn)
    regions = json.loads(saved.with_suffix(".geojson").read_text())
    FeatureCollection.model_validate(regions)
    [feature] = regions["features"]
    assert feature["properties"]["classification"]["name"] in {"benign", "malignant"}
    assert client.get(f"/api/items/{image['id']}").json()["corrected"]
    assert client.get(f"{url}.png").content == saved.read_bytes()
    assert client.get(f"{url}.geojson").json() == regions


def test_a_small_correction_is_enlarged_to_the_image(client, image):
    drawn = np.zeros((32, 32), np.uint8)
    drawn[8:24, 8:24] = 255
    client.put(f"/api/items/{image['id']}/correction", content=png(drawn))
    saved = np.asarray(Image.open(image["path"].with_name(f"{image['path'].stem}_corrected.png")))
    assert saved.shape == (64, 64)
    assert abs((saved > 0).mean() - 0.25) < 0.03


def test_the_correction_of_a_slide_is_geojson_in_its_pixels(client, items, slides):
    drawn = np.zeros((51, 64), np.uint8)
    drawn[10:20, 30:40] = 255  # a tenth of 640 x 510 pixels
    slide = items["glands.tif"]
    answer = client.put(f"/api/items/{slide['id']}/correction", content=png(drawn))
    assert answer.json() == {"files": ["glands_corrected.geojson"]}
    [feature] = json.loads((slides / "glands_corrected.geojson").read_text())["features"]
    x, y = np.array(feature["geometry"]["coordinates"][0]).T
    assert (x.min(), x.max()) == pytest.approx((300, 400), abs=6)
    assert (y.min(), y.max()) == pytest.approx((100, 200), abs=6)


def test_a_correction_that_is_no_image_changes_nothing(client, image, pictures):
    before = sorted(pictures.rglob("*"))
    assert client.put(f"/api/items/{image['id']}/correction", content=b"no image").status_code == 422
    assert sorted(pictures.rglob("*")) == before


def test_an_unreadable_image_is_listed_with_the_reason_and_without_its_path(make_app, pictures):
    from fastapi.testclient import TestClient

    broken = next((pictures / "images").glob("*.png"))
    broken.write_bytes(b"no image")
    with TestClient(make_app(), base_url="http://localhost") as client:
        item = next(each for each in client.get("/api/items").json()["items"] if each["name"].endswith(broken.name))
        assert predicted(client, item).status_code == 422
        for url in ("", "/thumbnail.jpg", "/tiles/6/0_0.jpg"):
            response = client.get(f"/api/items/{item['id']}{url}")
            assert response.status_code == 422
            assert response.json()["detail"].startswith(f"images/{broken.name}: not an image")
        listed = client.get("/api/items").json()["items"]
        assert next(each["failure"] for each in listed if each["id"] == item["id"]).startswith(f"images/{broken.name}")


@pytest.mark.parametrize("kind", ["image", "slide"])
def test_a_failed_prediction_is_repeated_on_request_and_not_before(make_app, pictures, slides, kind):
    from fastapi.testclient import TestClient

    path = next((pictures / "images").glob("*.png")) if kind == "image" else slides / "glands.tif"
    content = path.read_bytes()
    path.write_bytes(b"damaged for now")
    with TestClient(make_app(), base_url="http://localhost") as client:
        item = next(each for each in client.get("/api/items").json()["items"] if each["name"].endswith(path.name))
        assert predicted(client, item).status_code == 422
        path.write_bytes(content)
        assert predicted(client, item).status_code == 422  # following a prediction does not start it again
        url = f"/api/items/{item['id']}/predictions/0"
        response = client.post(f"{url}?retry=true")
        response = predicted(client, item) if response.status_code == 202 else response
        assert response.status_code == 200
        assert response.json()["label"] in {"benign", "malignant"}
        assert client.get(f"/api/items/{item['id']}").json()["failure"] is None
        assert client.get(f"{url}/overlay.png").status_code == 200


def test_an_unforeseen_error_of_a_prediction_is_a_failure_of_the_item(make_app, monkeypatch):
    from fastapi.testclient import TestClient

    app = make_app()
    run = app.state.viewer.predictor.runs["0"]
    right = type(run.model).predict
    monkeypatch.setattr(type(run.model), "predict", lambda *_: {}["x"])
    with TestClient(app, base_url="http://localhost") as client:
        item = next(each for each in client.get("/api/items").json()["items"] if each["kind"] == "image")
        response = predicted(client, item)
        assert response.status_code == 422
        assert response.json()["detail"] == f"{item['name']}: could not be predicted (KeyError)"
        assert client.post("/api/predict", content=png(np.zeros((9, 9, 3), np.uint8))).status_code == 422
        monkeypatch.setattr(type(run.model), "predict", right)
        response = client.post(f"/api/items/{item['id']}/predictions/0?retry=true")
        assert response.status_code in {200, 202}


def test_an_image_of_one_colour_is_refused_by_its_name(make_app, pictures):
    from fastapi.testclient import TestClient

    blank = next((pictures / "images").glob("*.png"))
    Image.new("RGB", (64, 64), "white").save(blank)
    with TestClient(make_app(), base_url="http://localhost") as client:
        item = next(each for each in client.get("/api/items").json()["items"] if each["name"].endswith(blank.name))
        response = predicted(client, item)
        assert response.status_code == 422
        assert response.json()["detail"].startswith(f"images/{blank.name}: ")


def test_the_api_is_described_without_other_hosts(client):
    description = client.get("/openapi.json").json()
    assert {"/api/items", "/api/predict", "/healthz"} <= set(description["paths"])
    for page in ("/", "/docs"):
        assert "http" not in client.get(page).text.replace("http-equiv", "")


def test_without_a_run_images_are_shown_and_nothing_is_predicted(make_app):
    from fastapi.testclient import TestClient

    with TestClient(make_app([]), base_url="http://localhost") as client:
        content = client.get("/api/items").json()
        assert content["runs"] == []
        assert len(content["items"]) == 4
        item = content["items"][0]["id"]
        assert client.get(f"/api/items/{item}/thumbnail.jpg").status_code == 200
        assert client.post(f"/api/items/{item}/predictions/0").status_code == 404
        assert client.post("/api/predict", content=b"").status_code == 404
