"""Frozen stages: which layers, no gradients, and BatchNorm as it was loaded."""

import pytest
import torch

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.freezing import freeze_stages
from histolumen.engine.checkpoint import load_model
from histolumen.engine.train import train
from histolumen.errors import ConfigError


def backbone(name: str, stride: int = 32, **settings):
    return build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride, **settings))


@pytest.mark.parametrize(
    ("name", "stride", "stages", "frozen", "trained"),
    [
        ("resnet18", 32, 1, "network.conv1", "network.layer1"),
        ("resnet18", 32, 2, "network.layer1", "network.layer2"),
        ("resnet18", 32, 4, "network.layer3", "network.layer4"),
        ("efficientnet_lite0", 16, 2, "stages.1", "stages.2"),
        ("efficientnet_lite0", 32, 3, "network.blocks.2", "network.blocks.3"),
        ("test_vit", 16, 2, "network.blocks.1", "network.blocks.2"),
    ],
)
def test_layers_up_to_the_stage_are_frozen(name, stride, stages, frozen, trained):
    network = backbone(name, stride)
    freeze_stages(network, stages)
    layers = {layer.removeprefix("trunk."): p.requires_grad for layer, p in network.named_parameters()}
    assert not any(on for layer, on in layers.items() if layer.startswith(f"{frozen}."))
    assert all(on for layer, on in layers.items() if layer.startswith(f"{trained}."))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_frozen_batchnorm_keeps_its_statistics_and_later_layers_update_theirs():
    network = backbone("resnet18")
    freeze_stages(network, 2)
    before = {name: value.clone() for name, value in network.named_buffers()}
    network.train()(torch.rand(2, 3, 64, 64))
    changed = {name for name, value in network.named_buffers() if not torch.equal(value, before[name])}
    assert any("layer2" in name for name in changed)
    assert not any("layer1" in name or "network.bn1" in name for name in changed)


def test_nothing_is_frozen_by_default():
    network = backbone("resnet18")
    freeze_stages(network, BackboneSettings().freeze)
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize(("name", "stages", "why"), [("resnet18", 6, "after 5 stages"), ("test_vit", 99, "blocks")])
def test_more_stages_than_the_network_has_are_refused(name, stages, why):
    with pytest.raises(ConfigError, match=why):
        freeze_stages(backbone(name), stages)


def test_a_run_with_frozen_stages_trains_the_rest_and_resumes_exactly(tiny_manifest, tiny_config, tmp_path):
    def run(out: str, epochs: int, *, resume: bool = False) -> dict[str, torch.Tensor]:
        config = tiny_config("backbone.freeze=2", f"train.epochs={epochs}")
        train(config, tiny_manifest, tmp_path / out, resume=resume)
        return load_model(tmp_path / out / "last")[0].state_dict()

    one, two = run("run", 1), run("run", 2, resume=True)
    whole = run("whole", 2)
    assert all(torch.equal(two[name], whole[name]) for name in two)
    moved = {name for name in one if not torch.equal(one[name], two[name])}
    assert not any("network.conv1" in name or "layer1" in name for name in moved)
    assert any("layer3" in name for name in moved)
