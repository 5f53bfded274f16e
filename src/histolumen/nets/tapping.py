"""Looking into a network at an inner layer."""

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

    A stage is the outermost module: the first layers of the next one still have that resolution, but are half-way in.
    """
    found: list[str] = []

    def note(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            wanted = (_PROBE // stride,) * 2
            if isinstance(output, Tensor) and output.ndim == 4 and output.shape[2:] == wanted:
                found.append(name)

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in network.named_modules() if name]
    was_training = network.training
    try:
        network.eval()(torch.zeros(1, 3, _PROBE, _PROBE))
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(f"this backbone does not take images of any size ({error}); choose another") from error
    finally:
        network.train(was_training)
        for handle in handles:
            handle.remove()
    if not found:
        raise ConfigError(
            f"this backbone has no layer of stride {stride}; choose another method.stride, method.decoder_stride or "
            "backbone.output_stride"
        )
    outermost = min(name.count(".") for name in found)
    return [name for name in found if name.count(".") == outermost][-1]


@contextmanager
def tapped(network: nn.Module, *layers: str) -> Iterator[list[Tensor]]:
    """Collect what `layers` give, in the order they run, while the block runs."""
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        outputs.append(output)

    handles = [network.get_submodule(layer).register_forward_hook(keep) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


class TappedNetwork(nn.Module):
    """The network up to one of its layers."""

    def __init__(self, network: nn.Module, layer: str):
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, images: Tensor) -> Tensor:
        """What the layer gives."""
        with tapped(self.network, self.layer) as outputs:
            self.network(images)
        return outputs[-1]
