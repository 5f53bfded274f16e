"""The Python API: public names, all kinds of inputs, predictions that display and save themselves."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gland_slides import SMALL_TILES
from PIL import Image

import histolumen as hl
from histolumen.data.image import read_image
from tiny import SMALL, Recorder

ROOT = Path(__file__).parents[1]
TINY_NETWORK = {
    "backbone__name": "test_resnet",
    "backbone__weights": "none",
    "output_stride": 16,
    "short_side": 64,
    "crop": 64,
    "epochs": 1,
}


@pytest.fixture(scope="module")
def model(tiny_run):
    return hl.load(tiny_run)


@pytest.fixture(scope="module")
def path(tiny_manifest):
    return tiny_manifest.image_path(tiny_manifest.rows[0])


def test_all_public_names_exist_and_are_documented():
    assert {"load", "train", "evaluate", "read_folder", "Model", "Prediction"} <= set(dir(hl))
    for name in hl.__all__:
        assert getattr(hl, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        hl.lod  # noqa: B018 - the access is the test


def test_path_pil_image_array_and_tensor_have_the_same_prediction(model, path):
    pixels = read_image(path)
    kinds = [path, str(path), Image.open(path), pixels, pixels / 255, torch.from_numpy(pixels).permute(2, 0, 1)]
    masks = [model.predict(kind).soft_mask for kind in kinds]
    assert all(np.array_equal(mask, masks[0]) for mask in masks[1:])


def test_grey_images_are_converted_to_rgb(model):
    grey = np.random.default_rng(0).integers(0, 256, (40, 50), dtype=np.uint8)
    colour = np.repeat(grey[..., None], 3, axis=2)
    assert np.array_equal(model.predict(grey).soft_mask, model.predict(colour).soft_mask)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((8, 8, 4), np.uint8), r"expected RGB \[H, W, 3\] or grey"),
        (torch.zeros(8, 8, 3), r"expected a tensor \[3, H, W\]"),
        (np.full((8, 8, 3), 200.0), r"floats must lie in \[0, 1\]"),
        (np.zeros((8, 8, 3), np.int32), "must be uint8"),
        (np.zeros((0, 8, 3), np.uint8), "no pixels"),
        (42, "expected a path, a PIL image, an array or a tensor, found int"),
        ("nowhere.png", "no such file"),
    ],
)
def test_invalid_images_are_refused(model, image, message):
    with pytest.raises(hl.HistolumenError, match=message):
        model.predict(image)


def test_predict_many_is_lazy_and_batches_do_not_change_the_result(model, tiny_manifest):
    paths = [*tiny_manifest.image_paths("train"), *tiny_manifest.image_paths("test")]
    large = Image.open(paths[0]).resize((96, 64))
    inputs = [*paths[:3], large, *paths[3:]]
    one_by_one = list(model.predict_many(inputs))
    together = list(model.predict_many(inputs, batch=4))
    assert [found.name for found in together] == [found.name for found in one_by_one]
    for a, b in zip(one_by_one, together, strict=True):
        assert np.allclose(a.soft_mask, b.soft_mask, atol=1e-4)
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-4)
    endless = model.predict_many(iter(lambda: paths[0], None))
    assert next(endless).label in model.classes  # only the first image is read


def test_a_prediction_can_be_displayed_and_saved(model, path, tmp_path):
    prediction = model.predict(path)
    assert 0 <= prediction.foreground_share <= 1
    assert prediction.foreground_share == prediction.mask.mean()
    assert prediction.label in repr(prediction)
    assert prediction._repr_png_().startswith(b"\x89PNG")
    assert "<img" in prediction._repr_html_()
    assert prediction.overlay().size == Image.open(path).size
    assert prediction.overlay(caption=True).height > Image.open(path).height
    higher = prediction.at(0.9)
    assert (higher.mask == (prediction.soft_mask >= 0.9)).all()
    assert higher.foreground_share < prediction.foreground_share
    assert higher.heatmap().width > Image.open(path).width  # with its colour bar
    record = prediction.save(tmp_path)
    for kind in ("soft_mask", "mask", "overlay"):
        assert (tmp_path / record[kind]).is_file()
    assert record["foreground_share"] == pytest.approx(prediction.foreground_share, abs=1e-6)
    geojson = prediction.to_geojson()
    assert json.loads(json.dumps(geojson))["type"] == "FeatureCollection"


def test_python_and_the_table_use_the_same_names(model, path, tmp_path):
    record = model.predict(path).save(tmp_path)
    prediction = model.predict(path)
    for name in ("probability", "foreground_share"):
        assert record[name] == pytest.approx(getattr(prediction, name), abs=1e-6)
    assert record["prediction"] == prediction.label
    assert record["soft_mask"].startswith("soft_masks/")


def test_the_repr_of_a_model_describes_it(model):
    assert repr(model).startswith("Model(maxmin on test_resnet, ")
    assert "classes benign, malignant" in repr(model)


def test_a_slide_in_memory_equals_the_slide_on_disk(model, gland_slide, tmp_path):
    prediction = model.predict_slide(gland_slide, SMALL_TILES)
    assert prediction.label in model.classes
    assert prediction.soft_mask.shape == prediction.mask.shape
    assert prediction._repr_png_().startswith(b"\x89PNG")
    assert gland_slide.name in repr(prediction)
    record = prediction.save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/regions.geojson").read_text())["features"]
    assert len(saved) == record["regions"] == len(prediction.to_geojson()["features"])
    from histolumen.engine.slides.predict import save_slide_prediction

    assert save_slide_prediction(model, gland_slide, tmp_path / "other", SMALL_TILES) == record


def test_train_and_evaluate_from_a_folder(tmp_path, tiny_manifest):
    for row in tiny_manifest.rows:
        target = tmp_path / "images" / row.label / Path(row.image).name
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(tiny_manifest.image_path(row)).save(target)
    data = hl.read_folder(tmp_path / "images", valid=0.25, test=0.25)
    assert repr(data).startswith(f"Manifest({tmp_path / 'images'}: 12 images, classes benign, malignant")
    recorder = Recorder()
    run = hl.train("folder", data, tmp_path / "run", progress=recorder, **TINY_NETWORK)
    assert run.best_epoch == 1
    assert [record["epoch"] for record in run.metrics] == [1]
    assert [record["epoch"] for record in recorder.epochs] == [1]
    assert repr(run) == f"Run({tmp_path / 'run'}: maxmin, 1 epochs, best 1)"
    result = hl.evaluate(run, data, "test", progress=recorder)
    assert "classification error" in str(result)
    assert hl.evaluate(tmp_path / "run", data, "test", progress=recorder).scores == result.scores


def test_a_configuration_can_be_given_and_changed(tmp_path, tiny_manifest):
    config = hl.load_config("folder", SMALL)
    run = hl.train(config, tiny_manifest, tmp_path / "run", progress=Recorder(), epochs=1, seed=3, method__sigma=0.3)
    assert (run.config.train.epochs, run.config.seed, run.config.method.sigma) == (1, 3, 0.3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ({"name": "resnet18"}, "several blocks; write method__name or backbone__name"),
        ({"epochs": 0}, "train.epochs: input should be greater than or equal to 1"),
    ],
)
def test_invalid_overrides_are_refused(tmp_path, tiny_manifest, overrides, message):
    with pytest.raises(hl.HistolumenError, match=message):
        hl.train("folder", tiny_manifest, tmp_path / "run", **overrides)


def test_a_user_script_is_typed(tmp_path):
    """pyright finds the types of the public API in spite of its lazy imports."""
    script = tmp_path / "script.py"
    script.write_text(
        "import histolumen as hl\n"
        "from histolumen.methods import MaxMin\n"
        "model = hl.load('runs/x')\n"
        "reveal_type(model.predict('x.png').soft_mask)\n"
        "reveal_type(hl.train('folder', 'data.csv', 'out').model)\n"
        "reveal_type(MaxMin)\n"
        "model.predict('x.png').labels\n"
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(script)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    messages = [item["message"] for item in found["generalDiagnostics"]]
    assert sum('is "ndarray' in message or 'is "Model"' in message for message in messages) == 2
    errors = [item["message"] for item in found["generalDiagnostics"] if item["severity"] == "error"]
    assert len(errors) == 1  # the deliberate error in the script
    assert '"labels"' in errors[0]
