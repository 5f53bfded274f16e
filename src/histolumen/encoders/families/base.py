"""The registry of encoder families: how networks of one kind are created and cut."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from histolumen.encoders.trunk import Trunk
from histolumen.errors import ConfigError
from histolumen.vision import timm

SUITABLE = "such as resnet18, convnext_atto, swin_tiny_patch4_window7_224 or vit_small_patch16_224"
"""Alternatives to name in an error message about an unsuitable network."""


class _WithoutInitialValues(TorchFunctionMode):
    """Skips drawing initial weights, which a network without storage has no place for; torch would import its compiler
    to find that out, over a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func.__name__ in {"normal_", "uniform_"}:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@dataclass(frozen=True)
class Architecture:
    """A timm network by name and options, inspected without allocating its weights."""

    name: str
    """As the user wrote it."""
    timm_name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _network(self) -> Any:
        with torch.device("meta"), _WithoutInitialValues():
            return timm.create_model(self.timm_name, num_classes=0, **self.options).eval()

    @property
    def _levels(self) -> list[dict[str, Any]]:
        levels: Any = getattr(self._network, "feature_info", None) or []
        return levels.info if hasattr(levels, "info") else levels

    @property
    def has_intermediates(self) -> bool:
        """Whether timm can return inner features of this network (`forward_intermediates`) and prune the rest."""
        return all(hasattr(self._network, name) for name in ("forward_intermediates", "prune_intermediate_layers"))

    @property
    def parameters(self) -> int:
        """Number of weights, without a classifier."""
        return sum(weight.numel() for weight in self._network.parameters())

    @property
    def width(self) -> int:
        """Channels of the last features."""
        return self._network.num_features

    @property
    def strides(self) -> list[int]:
        """Stride of each of the network's feature levels, in the order they run; empty if timm does not list them."""
        return [level["reduction"] for level in self._levels if "reduction" in level]

    def channels(self, level: int) -> int:
        """Channels of a feature level."""
        return self._levels[level]["num_chs"]

    def accepts(self, option: str) -> bool:
        """Whether the network can be created with this option."""
        return option in signature(type(self._network)).parameters

    @cached_property
    def ends_in_map(self) -> bool:
        """Whether `forward_features` returns a map of the coarsest stride, not tokens or a vector."""
        side = max(self._network.pretrained_cfg.get("input_size", (3, 224, 224))[1:])
        try:
            output = self._network.forward_features(torch.empty(1, 3, side, side, device="meta"))
        except Exception:  # noqa: BLE001 - networks raise all kinds of errors
            return False
        rows = 1 if getattr(self._network, "output_fmt", "NCHW") == "NHWC" else 2
        return isinstance(output, Tensor) and output.ndim == 4 and output.shape[rows] == -(-side // max(self.strides))


@dataclass(frozen=True)
class Cut:
    """Where a network is cut: at a stride, or after a block."""

    stride: int
    block: int | None = None


class Family(ABC):
    """Networks that are created and cut in the same way."""

    @abstractmethod
    def fits(self, architecture: Architecture) -> bool:
        """Whether the network belongs to this family."""

    def check(self, architecture: Architecture, cut: Cut) -> None:
        """Raise if the network cannot be cut there."""
        if cut.block is not None:
            raise ConfigError(
                f"backbone.block {cut.block}: {architecture.name} has no blocks of one stride as a vision transformer "
                "has; use backbone.output_stride"
            )

    def create(self, architecture: Architecture, cut: Cut, *, pretrained: bool) -> nn.Module:
        """Create the network into which weights are loaded."""
        del cut
        return timm.create_model(
            architecture.timm_name, num_classes=0, pretrained=pretrained, **self.all_options(architecture)
        )

    def all_options(self, architecture: Architecture) -> dict[str, Any]:
        """Options of the network, and those that make it accept images of any size."""
        return dict(architecture.options)

    @abstractmethod
    def trunk(self, network: nn.Module, architecture: Architecture, cut: Cut) -> Trunk:
        """The network up to the cut."""


_families: list[Family] = []

F = TypeVar("F", bound=Family)


def register_family(family: type[F]) -> type[F]:
    """Class decorator: register a family. A family derived from another is tried before it."""
    _families.append(family())
    _families.sort(key=lambda registered: -len(type(registered).__mro__))
    return family


def family_of(architecture: Architecture) -> Family:
    """The family that a network belongs to."""
    for family in _families:
        if family.fits(architecture):
            return family
    raise ConfigError(f"backbone {architecture.name}: timm provides no inner features of it; choose one {SUITABLE}")


def pruned(network: nn.Module, level: int, *, keep_norm: bool) -> nn.Module:
    """Remove, in place, everything after a feature level.

    Args:
        network: a network with `forward_intermediates`.
        level: index of the feature level.
        keep_norm: whether the final norm is applied to the features.
    """
    prune: Any = network.prune_intermediate_layers
    try:
        prune([level], prune_norm=not keep_norm, prune_head=True)
    except AssertionError:  # this head needs its pooling; it is replaced below
        prune([level], prune_norm=not keep_norm, prune_head=False)
    # Some heads keep their own norm, which the pruned network never runs.
    layers = getattr(network, "pretrained_cfg", {}).get("classifier") or ()
    for layer in (layers,) if isinstance(layers, str) else layers:
        if hasattr(network, top := layer.partition(".")[0]):
            setattr(network, top, nn.Identity())
    return network
