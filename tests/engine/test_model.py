"""`Model`: predictions of images of any size, windows, flips, and refused inputs."""

import numpy as np
import pytest
import torch

import histolumen
from histolumen.data.transforms import ImageSettings
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.engine import model as module
from histolumen.engine import windows
from histolumen.engine.windows import map_runner
from histolumen.errors import ImageError
from histolumen.methods.base import at_once, build_method, settings_of
from histolumen.tissue.solid import MaskSettings


@pytest.fixture(scope="module")
def model(tiny_run):
    return histolumen.load(tiny_run)


def test_a_prediction_has_the_size_of_the_image(model):
    image = np.random.default_rng(0).integers(0, 255, (53, 97, 3), dtype=np.uint8)
    prediction = model.predict(image)
    assert prediction.soft_mask.shape == prediction.mask.shape == (53, 97)
    assert prediction.soft_mask.min() >= 0
    assert prediction.soft_mask.max() <= 1
    assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert prediction.label in {"benign", "malignant"}
    assert prediction.foreground_share == prediction.mask.mean()


@pytest.mark.parametrize(("resize", "working"), [("short_side", (64, 128)), ("square", (64, 64))])
def test_a_mask_lies_where_its_pixels_are_whatever_the_resize(resize, working):
    """A map of the brightness of 60 x 120 pixels whose right third is bright."""
    settings = ImageSettings(short_side=64, crop=64, resize=resize)
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none"))
    method = build_method(settings_of("cam_avg")(), backbone, 2).eval()
    seen = []

    def brightness(X: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(X.shape[2:]))
        return torch.cat([X[:, :1], -X[:, :1]], dim=1)

    method.prediction_maps = brightness
    image = np.zeros((60, 120, 3), np.uint8)
    image[:, 80:] = 255
    [prediction] = module.predict_images(method, ["a", "b"], [image], settings, torch.device("cpu"), ["x.png"])
    assert seen == [working]
    assert prediction.soft_mask.shape == (60, 120)
    for mask in (prediction.mask if prediction.label == "a" else ~prediction.mask, prediction.mask_by_label("a")):
        assert not mask[:, :78].any()
        assert mask[:, 82:].all()


def test_a_file_and_its_pixels_have_the_same_prediction(model, tiny_manifest):
    from histolumen.data.image import read_image

    path = tiny_manifest.image_path(tiny_manifest.rows[0])
    assert np.array_equal(model.predict(path).soft_mask, model.predict(read_image(path)).soft_mask)
    assert model.predict(str(path)).probabilities == model.predict(path).probabilities


@pytest.mark.parametrize("pixels", [np.zeros((8, 8, 4), np.uint8), np.zeros(8, np.uint8), np.full((8, 8, 3), 2.0)])
def test_invalid_arrays_are_refused(model, pixels):
    with pytest.raises(ImageError, match=r"expected RGB|floats must lie in"):
        model.predict(pixels)


def test_too_narrow_images_are_refused(model):
    with pytest.raises(ImageError, match="too narrow"):
        model.predict(np.zeros((2, 300, 3), np.uint8))


def test_windows_agree_with_the_whole_image():
    """With a small receptive field, maps computed in windows equal those computed at once."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(16))
    image = torch.rand(1, 3, 320, 448)
    with torch.no_grad():
        whole = net(image)
        windowed = map_runner(320, 448, whole_pixels=1, window=128)(net, image)
    assert windowed.shape == whole.shape
    assert (windowed - whole).abs().mean() < 0.01 * whole.abs().mean()


@pytest.mark.parametrize("stride", [16, 32])
@pytest.mark.parametrize("size", [(333, 1000), (416, 2601), (77, 90), (528, 688)])
def test_windows_give_maps_of_the_size_of_the_whole(size, stride):
    """Also for sides that are no multiple of the stride, such as those of a resized X+."""
    net = torch.nn.AvgPool2d(stride, ceil_mode=True)
    image = torch.rand(1, 3, *size)
    assert map_runner(*size, whole_pixels=1, window=128)(net, image).shape == net(image).shape


def test_windows_lie_on_the_grid_of_the_network():
    """A network with 14-pixel patches accepts whole patches only; windows give the same maps as one pass."""

    def patches(images: torch.Tensor) -> torch.Tensor:
        assert all(side % 14 == 0 for side in images.shape[2:])
        return torch.nn.functional.avg_pool2d(images, 14)

    image = torch.rand(1, 3, 40 * 14, 31 * 14)
    windowed = map_runner(*image.shape[2:], whole_pixels=1, window=200, grid=14)(patches, image)
    assert torch.allclose(windowed, patches(image), atol=1e-5)


def test_small_images_are_predicted_at_once():
    assert map_runner(432, 640) is at_once
    assert map_runner(4096, 4096) is not at_once


@pytest.mark.parametrize("size", [(200, 333), (128, 1000)])
def test_large_images_are_predicted_window_by_window(model, monkeypatch, size):
    """The mask has the size of the image and is normalised over the image, not per window."""
    calls = []

    def small_windows(height, width, whole_pixels, grid):
        runner = map_runner(height, width, whole_pixels=1, window=64, grid=grid)
        return lambda net, images: (calls.append(images.shape), runner(net, images))[1]

    image = np.random.default_rng(1).integers(0, 255, (*size, 3), dtype=np.uint8)
    settings = model.config.images.model_copy(update={"short_side": None})
    whole = module.predict_images(model.method, model.classes, [image], settings, model.device, ["image"])[0]
    monkeypatch.setattr(windows, "map_runner", small_windows)
    windowed = module.predict_images(model.method, model.classes, [image], settings, model.device, ["image"])[0]
    assert len(calls) == 2  # maps of X, then of X+
    assert windowed.soft_mask.shape == size
    assert np.ptp(windowed.soft_mask) == pytest.approx(np.ptp(whole.soft_mask), abs=0.05)


def test_with_flips_an_image_and_its_mirror_image_have_the_same_prediction(model):
    settings = model.config.images.model_copy(update={"test_flips": True})
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    mirrored = np.ascontiguousarray(image[:, ::-1])
    first, second = (
        module.predict_images(model.method, model.classes, [pixels], settings, model.device, ["image"])[0]
        for pixels in (image, mirrored)
    )
    assert np.allclose(first.soft_mask, second.soft_mask[:, ::-1], atol=1e-4)
    assert first.probabilities == pytest.approx(second.probabilities, abs=1e-4)
    plain = module.predict_images(model.method, model.classes, [image], model.config.images, model.device, ["image"])[0]
    assert not np.allclose(plain.soft_mask, first.soft_mask, atol=1e-4)


def test_flips_average_the_evidence_too(tiny_config):
    method = build_method(
        settings_of("cam_avg")(), build_backbone(BackboneSettings(name="test_resnet", weights="none")), 2
    ).eval()
    settings = tiny_config("images.test_flips=true").images
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    found = module.predict_images(method, ["a", "b"], [image], settings, torch.device("cpu"), ["image"])[0]
    assert found.evidence.shape == (2, 64, 64)


def test_glass_is_removed_before_the_network_and_from_the_mask(model):
    """Whatever lies on the glass, class and mask are the same, and the mask leaves it out."""
    settings = model.config.images.model_copy(update={"glass": "remove"})
    rng = np.random.default_rng(0)
    image = rng.integers(60, 200, (96, 128, 3), dtype=np.uint8)
    image[:, :50] = 250
    other = image.copy()
    other[:, :40] = (246, 247, 245)

    def predict(pixels):
        return module.predict_images(model.method, model.classes, [pixels], settings, model.device, ["image"])[0]

    first, second = predict(image), predict(other)
    assert first.glass is not None
    assert 0.3 < first.glass.mean() < 0.45
    assert not first.soft_mask[first.glass].any()
    assert first.tissue_share == pytest.approx(1 - first.glass.mean())
    assert first.probabilities == pytest.approx(second.probabilities, abs=1e-6)
    assert np.allclose(first.soft_mask, second.soft_mask, atol=1e-6)


def test_an_image_without_tissue_gets_no_class(model):
    settings = model.config.images.model_copy(update={"glass": "remove"})
    blank = np.full((96, 128, 3), 249, np.uint8)
    answer = module.predict_images(model.method, model.classes, [blank], settings, model.device, ["image"])[0]
    assert (answer.label, answer.probability, answer.tissue_share) == ("no tissue", 0.0, 0.0)
    assert not answer.mask.any()
    assert answer.record()["prediction"] == "no tissue"


def test_masks_are_made_solid_as_the_recipe_says(model):
    image = np.random.default_rng(0).integers(60, 200, (96, 128, 3), dtype=np.uint8)
    everything = MaskSettings(min_area=96 * 128)
    plain, solid = (
        module.predict_images(
            model.method, model.classes, [image], model.config.images, model.device, ["image"], settings
        )[0]
        for settings in (None, everything)
    )
    assert plain.mask.any()
    assert not solid.mask.any()
