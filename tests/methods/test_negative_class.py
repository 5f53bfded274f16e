"""One class has no foreground (Camelyon16: normal): masks show evidence for the others, and may be empty."""

import numpy as np
import pytest
import torch
from build import tiny_method
from torch import Tensor

from histolumen.data.transforms import ImageSettings
from histolumen.engine.model import predict_images
from histolumen.engine.prediction import Prediction
from histolumen.errors import ConfigError
from histolumen.methods.class_maps import foreground_margin, foreground_probability, likeliest_with_foreground
from histolumen.metrics import count_pixels

CLASSES = ["metastatic", "normal"]
RIVALS = ["cam_avg", "cam_max", "cam_lse", "wildcat", "pn", "grad_cam", "layer_cam", "erase", "deep_mil"]
SIZE = 64


def tumour() -> Tensor:
    """The left half of a map of 4 x 4 positions."""
    maps = torch.zeros(4, 4, dtype=torch.bool)
    maps[:, :2] = True
    return maps


def perfect_cam(present: Tensor, negative_class: int | None) -> Prediction:
    """What CAM-Avg answers if its metastatic map is positive on the tumour alone, and the normal map its opposite."""
    method = tiny_method("cam_avg", negative_class=negative_class).eval()
    metastatic = torch.where(present, 2.0, -1.0) + 0.1 * torch.linspace(0, 1, 16).view(4, 4)  # no map is constant
    method.prediction_maps = lambda _: torch.stack([metastatic, -metastatic])[None]
    settings = ImageSettings(
        short_side=SIZE, crop=SIZE, negative_class=None if negative_class is None else CLASSES[negative_class]
    )
    (prediction,) = predict_images(
        method, CLASSES, [np.zeros((SIZE, SIZE, 3), np.uint8)], settings, torch.device("cpu"), ["patch.png"]
    )
    return prediction


def f1_minus(prediction: Prediction, mask: np.ndarray) -> float:
    """Against the truth of a normal patch: no foreground."""
    return 100 * count_pixels(prediction.soft_mask, np.zeros((SIZE, SIZE), bool), mask).f1_minus


def test_a_perfect_cam_on_a_normal_patch_has_an_f1_minus_of_100():
    prediction = perfect_cam(torch.zeros(4, 4, dtype=torch.bool), negative_class=1)
    assert prediction.label == "normal"
    assert f1_minus(prediction, prediction.mask_by_label("normal")) == 100
    assert f1_minus(prediction, prediction.mask) == 100
    assert prediction.soft_mask.max() < 0.5


def test_without_a_negative_class_the_same_cam_marks_normal_tissue():
    """GlaS: both classes have glands, so the map of the true or of the predicted class is the foreground."""
    prediction = perfect_cam(torch.zeros(4, 4, dtype=torch.bool), negative_class=None)
    assert f1_minus(prediction, prediction.mask_by_label("normal")) == 0
    assert f1_minus(prediction, prediction.mask) < 90


@pytest.mark.parametrize("label", CLASSES)
def test_the_mask_of_a_metastatic_patch_is_its_tumour_whatever_the_label(label):
    prediction = perfect_cam(tumour(), negative_class=1)
    for mask in (prediction.mask, prediction.mask_by_label(label)):
        assert mask[:, : SIZE // 4].all()
        assert not mask[:, -SIZE // 4 :].any()
        assert (mask == prediction.mask).all()


def test_the_margin_by_hand():
    maps = torch.tensor([3.0, 1.0, 2.0]).view(1, 3, 1, 1)
    assert [foreground_margin(maps, negative).item() for negative in range(3)] == [-1, 2, 1]
    assert foreground_probability(torch.tensor(1.0)).item() == pytest.approx(1 / (1 + np.exp(-1)), abs=1e-4)


def test_a_tie_is_no_evidence():
    """Where Grad-CAM's rectified maps are both 0 nothing was found."""
    assert foreground_probability(foreground_margin(torch.zeros(1, 2, 3, 3), 0)).max() < 0.5


def test_the_likeliest_class_is_one_with_foreground():
    probs = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])
    assert likeliest_with_foreground(probs, 1).tolist() == [2, 0]
    assert likeliest_with_foreground(probs, None).tolist() == [1, 0]


@pytest.mark.parametrize("name", RIVALS)
def test_evidence_does_not_depend_on_the_label(name):
    method = tiny_method(name, classes=3, negative_class=2).eval()
    evidence = method(torch.rand(2, 3, SIZE, SIZE)).evidence
    assert all(torch.equal(evidence[:, 0], evidence[:, k]) for k in (1, 2))


@pytest.mark.parametrize("name", [name for name in RIVALS if name != "deep_mil"])
def test_of_class_maps_both_rules_mark_the_same_pixels(name):
    method = tiny_method(name, negative_class=1).eval()
    output = method(torch.rand(2, 3, SIZE, SIZE))
    clear = output.evidence[:, :1].abs() > 1e-3  # rounding and the tie apart
    assert torch.equal((output.soft_mask >= 0.5)[clear], (output.evidence[:, :1] > 0)[clear])


@pytest.mark.parametrize("name", [name for name in RIVALS if name not in {"grad_cam", "layer_cam"}])
def test_an_image_that_is_surely_normal_has_an_empty_mask(name):
    method = tiny_method(name, negative_class=1).eval()
    head = {"deep_mil": "classifier", "erase": "head"}.get(name, "head")
    for weights in getattr(method, head).parameters():  # evidence for normal at every position
        weights.data = weights.data.abs().mul(0.1) + 1
        half = len(weights) // 2
        weights.data[:half] *= -1
    output = method(torch.rand(2, 3, SIZE, SIZE))
    assert (output.probs.argmax(1) == 1).all()
    assert output.soft_mask.max() < 0.5


def test_deep_mil_shows_the_attention_of_the_class_with_foreground():
    plain, method = tiny_method("deep_mil").eval(), tiny_method("deep_mil", negative_class=1).eval()
    for each in (plain, method):
        each.classifier.bias.data = torch.tensor([4.0, 0.0])  # metastatic
    images = torch.rand(1, 3, SIZE, SIZE)
    with torch.no_grad():
        unweighted, output = plain(images), method(images)
    assert torch.allclose(output.soft_mask, unweighted.soft_mask * output.probs[0, 0], atol=1e-6)
    assert torch.allclose(output.evidence[:, 1], unweighted.evidence[:, 0], atol=1e-6)


def test_regions_are_named_after_a_class_with_foreground():
    prediction = perfect_cam(torch.zeros(4, 4, dtype=torch.bool), negative_class=1)
    assert (prediction.label, prediction.region_label) == ("normal", "metastatic")
    assert prediction.geojson_style().label == "metastatic"


def test_a_class_that_does_not_exist_names_the_nearest():
    settings = ImageSettings(negative_class="normal")
    assert settings.negative_index(["metastatic", "normal"]) == 1
    with pytest.raises(ConfigError, match=r"images\.negative_class: no class 'normal'; did you mean 'normals'"):
        settings.negative_index(["normals", "tumour"])
