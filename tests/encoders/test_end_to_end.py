"""Vision transformers end to end: from a weights file to masks of images and slides."""

import numpy as np
import pytest
import safetensors.torch
import torch
from gland_slides import tissue_picture
from slide_files import write_slide

import histolumen
from histolumen.config import load_config
from histolumen.encoders.backbone import build_backbone
from histolumen.encoders.catalogue import CATALOGUE, Encoder
from histolumen.engine.model import Model
from histolumen.engine.slides.predict import SlideSettings
from histolumen.engine.train import train
from histolumen.methods.base import build_method
from histolumen.progress import Progress
from histolumen.vision import timm

SMALL = ("images.short_side=64", "images.crop=64", "train.epochs=1", "images.jitter=[0,0,0,0]")
TILES = SlideSettings(tile=250, overlap=60, model_mpp=0.5, min_area=10)
ODD = (61, 83)


class Messages(Progress):
    """Collects messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def slide(tmp_path):
    return write_slide(tmp_path / "slide.tif", tissue_picture(384, 320), mpp=0.5)


def odd_image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (*ODD, 3), dtype=np.uint8)


def test_a_transformer_of_patch_14_runs_the_best_recipe(tiny_manifest, tmp_path, slide, monkeypatch):
    """Load a weights file, train with proposals and a decoder, predict an image and a slide."""
    options = {"embed_dim": 48, "depth": 2, "num_heads": 3, "img_size": 70}
    monkeypatch.setitem(CATALOGUE, "tiny14", Encoder("vit_small_patch14_reg4_dinov2", options))
    network = timm.create_model("vit_small_patch14_reg4_dinov2", num_classes=0, **options)
    safetensors.torch.save_file(network.state_dict(), tmp_path / "w.safetensors")
    overrides = ("backbone.name=tiny14", f"backbone.weights={tmp_path / 'w.safetensors'}", "method.self_training=1")
    config = load_config("folder-best", [*SMALL, *overrides, "train.epochs=2"])
    messages = Messages()
    train(config, tiny_manifest, tmp_path / "run", progress=messages)
    assert any("has no BatchNorm" in line for line in messages.lines)
    model = histolumen.load(tmp_path / "run")
    decoder = model.method.decoder
    assert (decoder.stride, decoder.layers, decoder.guided) == (7, (), (7,))
    prediction = model.predict(odd_image())
    assert prediction.soft_mask.shape == ODD
    result = model.predict_slide(slide, TILES)
    assert sum(result.probabilities.values()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "stride", "recipe"),
    [
        ("test_vit", 32, "glas-sem"),
        ("test_vit", 32, "folder-best"),
        ("test_convnext", 8, "folder-best"),
        ("test_nfnet", 16, "folder-best"),
        ("swin_tiny_patch4_window7_224", 16, "glas-sem"),
    ],
)
def test_images_of_odd_sizes_and_slides_are_predicted(name, stride, recipe, slide):
    keys = (f"backbone.name={name}", "backbone.weights=none", f"backbone.output_stride={stride}")
    config = load_config(recipe, [*SMALL, *keys])
    torch.manual_seed(0)
    method = build_method(config.method, build_backbone(config.backbone), 2)
    model = Model(method, ["a", "b"], config, torch.device("cpu"))
    prediction = model.predict(odd_image())
    assert prediction.soft_mask.shape == ODD
    assert np.isfinite(prediction.soft_mask).all()
    result = model.predict_slide(slide, TILES.model_copy(update={"flips": False}))
    assert set(result.probabilities) == {"a", "b"}
