"""The decoder reads the strides it is told to, whatever the backbone and the size of the image."""

import pytest
import torch

from histolumen.nets.backbones import BackboneSettings, build_backbone
from histolumen.nets.pyramid import PyramidDecoder


@pytest.mark.parametrize(
    ("name", "stride", "finest"),
    [
        ("test_resnet", 16, 4),
        ("test_resnet", 16, 8),
        ("test_resnet", 16, 16),
        ("efficientnet_lite0", 16, 4),
        ("resnet18", 32, 4),
    ],
)
def test_logits_have_the_finest_stride(name, stride, finest):
    backbone = build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride)).eval()
    decoder = PyramidDecoder(backbone, finest, width=8).eval()
    with torch.no_grad():
        logits = decoder(*backbone.with_layers(torch.rand(1, 3, 96, 64), decoder.layers))
    assert decoder.stride == finest
    assert logits.shape == (1, 1, 96 // finest, 64 // finest)


def test_every_level_reaches_the_logits():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16)).eval()
    decoder = PyramidDecoder(backbone, 4, width=8).eval()
    features, inner = backbone.with_layers(torch.rand(1, 3, 64, 64), decoder.layers)
    levels = [level.detach().requires_grad_() for level in (*inner, features)]
    decoder(levels[-1], levels[:-1]).sum().backward()
    assert len(levels) == 3
    assert all(level.grad is not None and level.grad.abs().sum() > 0 for level in levels)


def test_the_backbone_is_left_as_it_was():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16)).train()
    decoder = PyramidDecoder(backbone, 4, width=8)
    assert backbone.training
    assert not [module for module in backbone.modules() if module._forward_hooks]
    assert not [name for name, _ in decoder.named_parameters() if "backbone" in name]
