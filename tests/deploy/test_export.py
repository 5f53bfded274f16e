"""`histolumen export`, and predictions by the exported file, with and without histolumen."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import tiny_model
from PIL import Image

import histolumen
from commands import histolumen as command
from histolumen.config import load_config
from histolumen.deploy import export, formats, quality
from histolumen.deploy.card import card_of
from histolumen.deploy.exported import ExportedModel, load_predictor
from histolumen.deploy.quality import QualityChange, refuse_loss
from histolumen.deploy.quantise import quantise
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.engine.model import Model
from histolumen.errors import ConfigError, ImageError, RunError
from histolumen.methods.base import build_method, settings_of
from tiny import SMALL

EXAMPLE = Path(__file__).parents[2] / "examples" / "predict_onnx.py"
WITHOUT = """
import sys
for name in ("histolumen", "torch"):
    sys.modules[name] = None  # importing it raises ImportError
import runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    result = command("export", tiny_run, "--format", "onnx", "--out", folder)
    assert result.returncode == 0, result.stderr
    return folder / "model.onnx"


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open() as file:
        return list(csv.DictReader(file))


def test_flips_and_back_is_the_trained_model(tiny_run):
    model = histolumen.load(tiny_run)
    changed = model.with_flips(True)
    assert changed.config.images.test_flips
    assert changed.identity != model.identity
    assert changed.with_flips(False).identity == model.identity
    assert model.with_flips(False) is model


def test_flips_of_an_exported_model_cannot_be_changed(exported, tmp_path):
    Image.new("RGB", (64, 64), "pink").save(tmp_path / "image.png")
    result = command("predict", exported, tmp_path / "image.png", "--out", tmp_path / "out", "--no-flips")
    assert result.returncode == 2
    assert "has its flips inside" in result.stderr


def test_the_card_is_in_the_file_and_beside_it(exported, tiny_run):
    beside = json.loads(exported.with_name("model.onnx.json").read_text())
    card = load_predictor(exported).card
    assert json.loads(card.as_json()) == beside
    assert beside["classes"] == ["benign", "malignant"]
    assert beside["model"] == histolumen.load(tiny_run).identity
    assert beside["preprocessing"]["short_side"] == 64
    assert set(beside["inputs"]) == {"image"}


def test_predict_answers_as_the_run_folder(exported, tiny_run, tiny_manifest, tmp_path):
    images = tiny_manifest.image_paths()[:3]
    for name, source, options in (
        ("torch", tiny_run, ()),
        ("onnx", exported, ()),
        ("openvino", exported, ("--runtime", "openvino")),
    ):
        result = command("predict", source, *images, "--out", tmp_path / name, *options)
        assert result.returncode == 0, result.stderr
        assert ("an exported file does not know them" in result.stderr) == (name != "torch")
    expected = rows(tmp_path / "torch")
    for name in ("onnx", "openvino"):
        found = rows(tmp_path / name)
        assert [row["prediction"] for row in found] == [row["prediction"] for row in expected]
        for row, other in zip(found, expected, strict=True):
            masks = [
                np.asarray(Image.open(tmp_path / folder / each["soft_mask"]), dtype=float)
                for folder, each in ((name, row), ("torch", other))
            ]
            assert np.abs(masks[0] - masks[1]).max() <= 1


def test_the_example_needs_neither_histolumen_nor_torch(exported, tiny_run, tmp_path):
    image = tmp_path / "x.png"
    pixels = np.random.default_rng(1).integers(0, 256, (70, 101, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(image)
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(EXAMPLE), str(exported), str(image)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    expected = histolumen.load(tiny_run).predict(image)
    assert f"x.png: {expected.label} ({expected.probability:.3f})" in result.stdout
    mask = np.asarray(Image.open(tmp_path / "x_mask.png"))
    assert (mask == expected.mask).mean() > 0.999


def test_existing_files_are_kept(exported, tiny_run):
    result = command("export", tiny_run, "--format", "onnx", "--out", exported.parent)
    assert result.returncode == 2
    assert "--overwrite" in result.stderr


def test_int8_reports_the_change_and_is_marked_as_such(tiny_run, tiny_manifest, tmp_path):
    tiny_manifest.write(tmp_path / "manifest.csv")
    options = ("--int8", "--calibrate", tmp_path / "manifest.csv", "--accept-loss")
    for file_format, file in (("onnx", "model.onnx"), ("openvino", "model.xml")):
        result = command("export", tiny_run, "--format", file_format, "--out", tmp_path, *options, "--overwrite")
        assert result.returncode == 0, result.stderr
        assert "F1+" in result.stderr + result.stdout
        model = load_predictor(tmp_path / file)
        assert model.card.precision == "int8"
        assert set(model.card.int8["int8"]) == {"f1_plus", "f1_minus", "error"}
        assert model.predict(tiny_manifest.image_paths()[0]).soft_mask.shape == (64, 64)


def change(**values: float) -> QualityChange:
    before = {"f1_plus": 70.0, "f1_minus": 60.0, "error": 5.0}
    return QualityChange(18, before, before | values, mask_agreement=98.0, class_agreement=100.0)


def test_a_loss_of_more_than_a_point_of_f1_is_refused():
    refuse_loss(change(f1_plus=69.1, error=10))
    for worse in ({"f1_plus": 68.9}, {"f1_minus": 58.5}):
        with pytest.raises(RunError, match="--accept-loss"):
            refuse_loss(change(**worse))
    with pytest.raises(RunError, match=r"2\.00 points"):  # without masks, by the agreement with single precision
        refuse_loss(replace(change(), before={}, after={}))


def test_a_refused_model_is_not_written(tiny_manifest, tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "MAX_LOSS", -1)
    with pytest.raises(RunError, match="nothing is written"):
        export.export_model(tiny_model("cam_avg"), tmp_path / "out", "onnx", calibrate=tiny_manifest)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["grad_cam", "layer_cam"])
def test_methods_that_need_gradients_are_refused(name, tmp_path):
    with pytest.raises(ConfigError, match="gradients"):
        export.export_model(tiny_model(name), tmp_path, "onnx")


def test_transformers_are_exported_for_one_working_size_only(tmp_path):
    backbone = BackboneSettings(name="test_vit", weights="none")
    method = build_method(settings_of("cam_avg")(), build_backbone(backbone), 2)

    def model(resize: str) -> Model:
        config = load_config("glas-cam-avg", [*SMALL, "backbone.name=test_vit", f"images.resize={resize}"])
        return Model(method, ["benign", "malignant"], config)

    assert export.export_model(model("square"), tmp_path / "vit.pt", "torchscript").difference < 1e-4
    with pytest.raises(RunError, match="try --format torchscript"):  # its position embedding is resized in the graph
        export.export_model(model("square"), tmp_path / "vit.onnx", "onnx")
    with pytest.raises(ConfigError, match="square"):
        export.export_model(model("short_side"), tmp_path / "other.pt", "torchscript")


def test_int8_leaves_the_refinement_in_single_precision(tmp_path):
    openvino = pytest.importorskip("openvino")
    model = tiny_model("maxmin", mask_from="decoder", refine=True)
    card = card_of(model, "openvino")
    formats.write_graph(model, card, tmp_path / "model.xml")
    image = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    quantise(tmp_path / "model.xml", tmp_path / "int8.xml", card, [{"image": image}])
    operations = openvino.Core().read_model(tmp_path / "int8.xml").get_ops()
    names = [each.get_friendly_name() for each in operations if each.get_type_name() == "FakeQuantize"]
    assert names
    assert any("refinement/" in each.get_friendly_name() for each in operations)
    assert not [name for name in names if "refinement/" in name]


def test_int8_belongs_with_calibration_and_not_to_torchscript(tiny_run, tiny_manifest, tmp_path):
    assert "--calibrate" in command("export", tiny_run, "--int8", "--out", tmp_path).stderr
    with pytest.raises(ConfigError, match="onnx and openvino"):
        export.export_model(tiny_model("cam_avg"), tmp_path, "torchscript", calibrate=tiny_manifest)


def test_a_missing_extra_gives_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(formats._MODULES, "onnx", ("no_such_module",))
    with pytest.raises(ConfigError, match=r"pip install .*\[export\]"):
        export.export_model(tiny_model("cam_avg"), tmp_path, "onnx")


def test_a_run_folder_with_another_runtime_says_how_to_export(tiny_run):
    with pytest.raises(ConfigError, match="histolumen export"):
        load_predictor(tiny_run, "onnx")


def test_files_and_runtimes_must_fit(exported, tmp_path):
    with pytest.raises(ConfigError, match="onnx or openvino"):
        load_predictor(exported, "torch")
    with pytest.raises(RunError, match="no such file"):
        load_predictor(tmp_path / "x.onnx")
    (tmp_path / "x.onnx").write_bytes(b"not a graph")
    with pytest.raises(RunError, match="cannot be loaded"):
        load_predictor(tmp_path / "x.onnx")


def test_images_that_need_windows_are_refused(exported, monkeypatch):
    model = load_predictor(exported)
    assert isinstance(model, ExportedModel)
    model.card = replace(model.card, max_working_pixels=64 * 64)
    image = np.random.default_rng(0).integers(0, 256, (64, 200, 3), dtype=np.uint8)
    with pytest.raises(ImageError, match="windows"):
        model.predict(image)
