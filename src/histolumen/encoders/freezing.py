"""Frozen stages: the first layers of a network keep the weights they were loaded with."""

from typing import Any

import torch
from torch import nn

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.batchnorm import CaseBatchNorm
from histolumen.encoders.tapping import layer_of_stride
from histolumen.errors import ConfigError

_PROBE = 64


def freeze_stages(backbone: Backbone, stages: int) -> None:
    """Freeze the first stages in place: no gradients, and BatchNorm with its running statistics.

    Args:
        backbone: to freeze.
        stages: number of stages; stage n ends with the last layer of stride 2^n, or, in a plain vision transformer,
            with its n-th block.
    """
    if not stages:
        return
    trunk = backbone.trunk
    later = _modules_after(trunk, _last_layer(backbone, stages))
    trained = {id(parameter) for module in later for parameter in module.parameters()}
    for parameter in trunk.parameters():
        parameter.requires_grad = id(parameter) in trained
    inside = {id(part) for module in later for part in module.modules()}
    for module in trunk.modules():
        if isinstance(module, CaseBatchNorm) and id(module) not in inside:
            module.keep_statistics()


def _last_layer(backbone: Backbone, stages: int) -> str:
    """Name of the last frozen layer."""
    if not backbone.single_stride:
        if 2**stages > backbone.stride:
            raise ConfigError(
                f"backbone.freeze={stages}: this backbone ends at stride {backbone.stride}, after "
                f"{backbone.stride.bit_length() - 1} stages; freeze at most as many"
            )
        return layer_of_stride(backbone.trunk, 2**stages)
    blocks = [name for name, _ in backbone.trunk.named_modules() if name.split(".")[-2:-1] == ["blocks"]]
    if stages > len(blocks):
        raise ConfigError(f"backbone.freeze={stages}: this backbone has {len(blocks)} blocks; freeze at most as many")
    return blocks[stages - 1]


@torch.no_grad()
def _modules_after(network: nn.Module, layer: str) -> list[nn.Module]:
    """The modules that start after `layer` has run, in a pass over a small image."""
    after: list[nn.Module] = []
    reached = False

    def finish(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        nonlocal reached
        reached = True

    def start(module: nn.Module, _inputs: Any) -> None:
        if reached:
            after.append(module)

    handles = [network.get_submodule(layer).register_forward_hook(finish)]
    handles += [module.register_forward_pre_hook(start) for module in network.modules()]
    was_training = network.training
    try:
        network.eval()(torch.zeros(1, 3, _PROBE, _PROBE))
    finally:
        network.train(was_training)
        for handle in handles:
            handle.remove()
    return after
