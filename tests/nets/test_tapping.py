import pytest
import torch
from torch import nn

from histolumen.errors import ConfigError
from histolumen.nets.backbones import BackboneSettings, build_backbone
from histolumen.nets.tapping import TappedNetwork, layer_of_stride, tapped


@pytest.mark.parametrize(
    ("name", "stride", "tapped_stride"),
    [("resnet18", 32, 8), ("efficientnet_lite0", 16, 8), ("efficientnet_lite0", 16, 4), ("test_resnet", 16, 16)],
)
def test_the_layer_has_the_stride_asked_for(name, stride, tapped_stride):
    trunk = build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride)).trunk.eval()
    layer = layer_of_stride(trunk, tapped_stride)
    with torch.no_grad():
        found = TappedNetwork(trunk, layer)(torch.rand(1, 3, 96, 64))
    assert found.shape[2:] == (96 // tapped_stride, 64 // tapped_stride)


def test_a_stage_is_taken_and_not_the_first_layers_of_the_next_one():
    trunk = build_backbone(BackboneSettings(name="resnet18", weights="none")).trunk
    assert layer_of_stride(trunk, 8) == "network.layer2"


def test_the_last_such_layer_is_taken():
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
