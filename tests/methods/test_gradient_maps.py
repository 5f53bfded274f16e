"""Grad-CAM and LayerCAM against captum and torch-cam."""

import pytest
import torch
from build import tiny_method
from torch import nn

from histolumen import vision  # noqa: F401 - before torchcam, which imports torchvision
from histolumen.errors import ConfigError
from histolumen.methods.grad_cam import class_gradients, grad_cam
from histolumen.methods.layer_cam import layer_cam


class Scores(nn.Module):
    """The classifier inside a method, as a plain module."""

    def __init__(self, method):
        super().__init__()
        self.trunk = method.backbone.trunk
        self.head = method.head

    def forward(self, images):
        return self.head(self.trunk(images)).mean((2, 3))


@pytest.fixture(params=[2, 5])
def method(request):
    return tiny_method("grad_cam", classes=request.param).eval()


@pytest.fixture
def images():
    torch.manual_seed(3)
    return torch.randn(3, 3, 64, 96)


def features_and_gradients(method, images):
    features = method.backbone(images).detach().requires_grad_()
    return features.detach(), class_gradients(method.scores(method.maps(features)), features)


def test_grad_cam_equals_captum(method, images):
    from captum.attr import LayerGradCam

    model = Scores(method)
    ours = grad_cam(*features_and_gradients(method, images))
    for label in range(ours.shape[1]):
        theirs = LayerGradCam(model, model.trunk).attribute(images, target=label, relu_attributions=True)
        assert torch.allclose(ours[:, label], theirs[:, 0], atol=1e-6)


def test_layer_cam_equals_torchcam(method, images):
    from torchcam.methods import LayerCAM

    model = Scores(method)
    ours = layer_cam(*features_and_gradients(method, images))
    for label in range(ours.shape[1]):
        with LayerCAM(model, target_layer=model.trunk) as extractor:
            scores = model(images)
            theirs = extractor([label] * len(images), scores, normalized=False)[0]
        # torch-cam returns tanh-scaled, un-normalised maps: equal up to a factor per image
        expected = ours[:, label] / ours[:, label].amax((1, 2), keepdim=True)
        normalised = theirs / theirs.amax((1, 2), keepdim=True)
        assert torch.allclose(normalised, expected, atol=1e-5)


@pytest.mark.parametrize("stride", [4, 8])
def test_inner_layers_equal_torchcam_too(images, stride):
    from torchcam.methods import LayerCAM

    method = tiny_method("layer_cam", stride=stride).eval()
    ours = method.prediction_maps(images)[:, 2:]
    assert ours.shape[2:] == (64 // stride, 96 // stride)
    model = Scores(method)
    layer = model.trunk.get_submodule(method.layer)
    with LayerCAM(model, target_layer=layer) as extractor:
        theirs = extractor([1] * len(images), model(images), normalized=False)[0]
    expected = ours[:, 1] / ours[:, 1].amax((1, 2), keepdim=True)
    assert torch.allclose(theirs / theirs.amax((1, 2), keepdim=True), expected, atol=1e-4)


def test_gradients_of_all_classes_at_once_equal_one_by_one(method, images):
    features = method.backbone(images).detach().requires_grad_()
    together = class_gradients(method.scores(method.maps(features)), features)
    scores = method.scores(method.maps(features))
    for label in range(scores.shape[1]):
        alone = torch.autograd.grad(scores[:, label].sum(), features, retain_graph=True)[0]
        assert torch.allclose(together[label], alone, atol=1e-7)


def test_a_layer_deeper_than_the_backbone_is_refused():
    with pytest.raises(ConfigError, match=r"exceeds backbone\.output_stride"):
        tiny_method("layer_cam", stride=32)


def test_maps_do_not_depend_on_inference_mode(images):
    method = tiny_method("layer_cam", stride=8).eval()
    plain = method(images.sigmoid()).soft_mask
    with torch.inference_mode():
        assert torch.equal(method(images.sigmoid()).soft_mask, plain)


def test_layer_cam_on_a_transformer_explains_its_block_and_has_no_finer_layer():
    from histolumen.encoders.backbone import BackboneSettings, build_backbone
    from histolumen.methods.base import build_method, settings_of

    backbone = build_backbone(BackboneSettings(name="test_vit", weights="none"))
    method = build_method(settings_of("layer_cam")(), backbone, 2).eval()
    assert method.prediction_maps(torch.rand(1, 3, 48, 80)).shape == (1, 4, 3, 5)
    with pytest.raises(ConfigError, match=r"method\.stride 8: .*patches of 16 pixels; set method\.stride=16"):
        build_method(settings_of("layer_cam")(stride=8), backbone, 2)
