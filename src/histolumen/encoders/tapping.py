"""Outputs of inner layers of a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from histolumen.errors import ConfigError

_PROBE = 64


@torch.no_grad()
def layer_of_stride(network: nn.Module, stride: int) -> str:
    """Name of the last stage of `network` whose output has one position per `stride` pixels.

    Only the outermost such modules count: the first layers inside the next stage still have that resolution.
    """
    matching: list[str] = []

    def record(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            expected = (_PROBE // stride,) * 2
            if isinstance(output, Tensor) and output.ndim == 4 and output.shape[2:] == expected:
                matching.append(name)

        return hook

    handles = [module.register_forward_hook(record(name)) for name, module in network.named_modules() if name]
    was_training = network.training
    try:
        network.eval()(torch.zeros(1, 3, _PROBE, _PROBE))
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(f"this backbone does not accept arbitrary image sizes ({error}); choose another") from error
    finally:
        network.train(was_training)
        for handle in handles:
            handle.remove()
    if not matching:
        raise ConfigError(
            f"this backbone has no layer of stride {stride}; choose another method.stride, method.decoder_stride or "
            "backbone.output_stride"
        )
    outermost = min(name.count(".") for name in matching)
    return [name for name in matching if name.count(".") == outermost][-1]


@contextmanager
def tapped(network: nn.Module, *layers: str) -> Iterator[list[Tensor]]:
    """Collect the outputs of `layers`, in the order they run, within the block."""
    outputs: list[Tensor] = []

    def collect(_module: nn.Module, _inputs: Any, output: Any) -> None:
        outputs.append(output)

    handles = [network.get_submodule(layer).register_forward_hook(collect) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


class TappedNetwork(nn.Module):
    """A network that returns the output of one of its inner layers."""

    def __init__(self, network: nn.Module, layer: str):
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, images: Tensor) -> Tensor:
        """Output of the layer."""
        with tapped(self.network, self.layer) as outputs:
            self.network(images)
        return outputs[-1]
