"""The pyramid decoder: its strides, for any backbone and image size."""

import pytest
import torch

from histolumen.encoders.backbone import BackboneSettings, build_backbone
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


def test_the_backbone_is_not_changed():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16)).train()
    decoder = PyramidDecoder(backbone, 4, width=8)
    assert backbone.training
    assert not [module for module in backbone.modules() if module._forward_hooks]
    assert not [name for name, _ in decoder.named_parameters() if "backbone" in name]


@pytest.mark.parametrize(("stride", "finest", "levels"), [(16, 4, (4, 8)), (16, 8, (8,)), (14, 4, (7,)), (8, 4, (4,))])
def test_without_fine_layers_the_image_is_used(stride, finest, levels):
    """A vision transformer has one stride; finer levels read the downsampled image."""
    backbone = build_backbone(BackboneSettings(name="test_vit", weights="none"))
    trunk = backbone.trunk
    trunk.stride = backbone.stride = stride
    decoder = PyramidDecoder(backbone, finest, width=8).eval()
    assert (decoder.guided, decoder.layers, decoder.stride) == (levels, (), levels[0])
    features, images = torch.rand(1, backbone.channels, 4, 3), torch.rand(1, 3, 4 * stride - 3, 3 * stride)
    images.requires_grad_()
    inner = decoder.with_guides([], images)
    assert [level.shape[2:] for level in inner] == [(4 * stride // s, 3 * stride // s) for s in levels]
    logits = decoder(features, inner)
    assert decoder.mask(logits, *images.shape[2:]).shape == (1, 1, *images.shape[2:])
    logits.sum().backward()
    assert images.grad.abs().sum() > 0


def test_parameter_names_match_earlier_checkpoints():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16))
    names = {name.rpartition(".")[0] for name, _ in PyramidDecoder(backbone, 4, width=8).named_parameters()}
    mixes = {f"mix.{k}.{layer}" for k in range(3) for layer in (0, 1)}
    assert names == {"enter.0", "enter.1", "enter.2", "leave", *mixes}
