"""Outputs of inner layers, and the choice of a layer by its stride."""

import threading

import pytest
import torch
from torch import nn

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.batchnorm import Case
from histolumen.encoders.tapping import TappedNetwork, layer_of_stride, run_after, run_up_to, tapped
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


@pytest.mark.parametrize(
    ("name", "stride", "split"), [("resnet18", 32, 8), ("efficientnet_lite0", 16, 4), ("test_resnet", 16, 8)]
)
def test_both_halves_of_a_network_are_the_network(name, stride, split):
    backbone = build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride)).eval()
    layer = layer_of_stride(backbone.trunk, split)
    images = torch.rand(2, 3, 96, 64)
    with torch.no_grad():
        early = backbone.up_to(layer, images)
        assert early.shape[2:] == (96 // split, 64 // split)
        assert torch.equal(backbone.after(layer, early, Case.WHOLE), backbone(images))
    assert not any(module._forward_hooks for module in backbone.modules())


def test_the_second_half_does_not_touch_the_statistics_of_the_first():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16)).train()
    layer = layer_of_stride(backbone.trunk, 8)
    early = backbone.up_to(layer, torch.rand(2, 3, 64, 64))
    before = {name: value.clone() for name, value in backbone.named_buffers()}
    backbone.after(layer, early, Case.FOREGROUND)
    changed = {name for name, value in backbone.named_buffers() if not torch.equal(value, before[name])}
    inside = {name for name, _ in backbone.trunk.get_submodule(layer).named_buffers(prefix=f"trunk.{layer}")}
    later = [name for name in before if name.endswith("running_mean")][-1]
    assert later in changed
    assert not changed & inside


def test_a_layer_that_does_not_run_is_an_error_of_the_caller():
    class Forgetful(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[0](x)

    with pytest.raises(ValueError, match="layer 1 did not run"):
        run_up_to(Forgetful(nn.ReLU(), nn.ReLU()), "1", torch.zeros(1, 3, 8, 8))


def test_another_thread_that_uses_the_network_does_not_mix_in():
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    with tapped(network, "0") as outputs:
        other = threading.Thread(target=network, args=(torch.zeros(1, 3, 9, 9),))
        other.start()
        other.join()
        network(torch.zeros(1, 3, 5, 5))
    assert [tuple(output.shape) for output in outputs] == [(1, 4, 5, 5)]


def test_another_thread_runs_the_whole_network_while_one_stops_at_a_layer():
    network, images = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), torch.zeros(1, 3, 5, 5)
    answers = []

    def run_elsewhere(*_: object) -> None:
        if not answers:  # once; the other thread passes here too
            answers.append(None)
            other = threading.Thread(target=lambda: answers.append(network(images)))
            other.start()
            other.join()

    network[0].register_forward_pre_hook(run_elsewhere)
    assert run_up_to(network, "0", images).shape == (1, 4, 5, 5)
    assert [answer is not None for answer in answers] == [False, True]


def test_another_thread_keeps_its_own_features_while_one_replaces_those_of_a_layer():
    network, images = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), torch.rand(1, 3, 5, 5)
    expected, answers = network(images), []

    def run_elsewhere() -> None:
        other = threading.Thread(target=lambda: answers.append(network(images)))
        other.start()
        other.join()

    run_after(network, "0", torch.zeros(1, 4, 5, 5), run_elsewhere)
    assert torch.equal(answers[0], expected)


def test_a_layer_is_found_wherever_the_network_is():
    """Layers are also looked for after training was set up, on another device than the CPU."""
    network = build_backbone(BackboneSettings(name="test_resnet", weights="none")).trunk
    assert layer_of_stride(network, 16) == layer_of_stride(network.to("meta"), 16)
