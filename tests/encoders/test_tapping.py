"""Outputs of inner layers, and the choice of a layer by its stride."""

import pytest
import torch
from torch import nn

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.tapping import TappedNetwork, layer_of_stride, tapped
from histolumen.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "stride", "tapped_stride"),
    [("resnet18", 32, 8), ("efficientnet_lite0", 16, 8), ("efficientnet_lite0", 16, 4), ("test_resnet", 16, 16)],
)
def test_the_layer_has_the_requested_stride(name, stride, tapped_stride):
    trunk = build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride)).trunk.eval()
    layer = layer_of_stride(trunk, tapped_stride)
    with torch.no_grad():
        features = TappedNetwork(trunk, layer)(torch.rand(1, 3, 96, 64))
    assert features.shape[2:] == (96 // tapped_stride, 64 // tapped_stride)


def test_a_stage_is_chosen_and_not_the_first_layers_of_the_next_one():
    trunk = build_backbone(BackboneSettings(name="resnet18", weights="none")).trunk
    assert layer_of_stride(trunk, 8) == "network.layer2"


def test_the_last_layer_of_a_stride_is_chosen():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 1, 1), nn.Conv2d(4, 4, 3, 2, 1))
    assert layer_of_stride(network, 2) == "1"


def test_a_stride_that_does_not_occur():
    with pytest.raises(ConfigError, match="no layer of stride 8"):
        layer_of_stride(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1)), 8)


def test_hooks_are_removed_even_after_an_error():
    network = nn.Sequential(nn.ReLU())
    with pytest.raises(RuntimeError), tapped(network, "0"):
        raise RuntimeError
    assert not network[0]._forward_hooks


def test_probing_leaves_the_mode_as_it_was():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1)).train()
    layer_of_stride(network, 2)
    assert network.training
