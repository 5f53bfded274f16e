"""Outputs of inner layers of a network."""

import threading
from collections.abc import Callable, Iterator
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
    device = next((weight.device for weight in network.parameters()), None)
    try:
        with uncompiled(network):
            network.eval()(torch.zeros(1, 3, _PROBE, _PROBE, device=device))
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
    """Collect the outputs of `layers`, in the order they run, within the block; other threads may use the network."""
    outputs: list[Tensor] = []
    own_thread = threading.get_ident()

    def collect(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if threading.get_ident() == own_thread:
            outputs.append(output)

    handles = [network.get_submodule(layer).register_forward_hook(collect) for layer in layers]
    try:
        with uncompiled(network):
            yield outputs
    finally:
        for handle in handles:
            handle.remove()


class _Reached(Exception):  # noqa: N818 - not an error
    """Ends a pass at a layer; carries its output."""

    def __init__(self, output: Tensor):
        super().__init__()
        self.output = output


def run_up_to(network: nn.Module, layer: str, images: Tensor) -> Tensor:
    """Output of `layer`; later layers are not run. Other threads may use the network."""
    own_thread = threading.get_ident()

    def stop(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if threading.get_ident() == own_thread:
            raise _Reached(output)

    handle = network.get_submodule(layer).register_forward_hook(stop)
    try:
        with uncompiled(network):
            network(images)
    except _Reached as reached:
        return reached.output
    finally:
        handle.remove()
    raise ValueError(f"layer {layer} did not run")


def run_after(network: nn.Module, layer: str, features: Tensor, on_reached: Callable[[], Any]) -> Tensor:
    """Output of `network` where `layer` has the output `features`.

    Earlier layers run on a small placeholder, whose features are dropped: so no network needs to be taken apart. Other
    threads may use the network.

    Args:
        network: whose layers form a chain; no connection may bypass `layer`.
        layer: name of the layer.
        features: [B, C, h, w].
        on_reached: called before the first layer that sees `features`.
    """

    own_thread = threading.get_ident()

    def insert(_module: nn.Module, _inputs: Any, _output: Any) -> Tensor | None:
        if threading.get_ident() != own_thread:
            return None
        on_reached()
        return features

    handle = network.get_submodule(layer).register_forward_hook(insert)
    try:
        with uncompiled(network):
            return network(features.new_zeros(1, 3, _PROBE, _PROBE))
    finally:
        handle.remove()


@contextmanager
def uncompiled(network: nn.Module) -> Iterator[None]:
    """Run `network` without torch.compile within the block: compiled code does not see hooks added later."""
    compiled, network._compiled_call_impl = network._compiled_call_impl, None
    try:
        yield
    finally:
        network._compiled_call_impl = compiled


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
