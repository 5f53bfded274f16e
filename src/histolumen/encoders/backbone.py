"""Backbones: networks from an image to a feature map."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from histolumen.data.transforms import SIZE_MULTIPLE
from histolumen.encoders import weights
from histolumen.encoders.batchnorm import Case, CaseBatchNorm, Statistics, case_of, split_statistics
from histolumen.encoders.catalogue import CATALOGUE, Encoder
from histolumen.encoders.families import Architecture, Cut, family_of
from histolumen.encoders.geometry import FeatureGeometry, measure_offset
from histolumen.encoders.hub import hub_errors_as_weights_error, hub_repository, hub_tensors
from histolumen.encoders.sizes import find_required_multiple
from histolumen.encoders.tapping import run_after, run_up_to, tapped
from histolumen.encoders.trunk import NoTrunk, Trunk
from histolumen.errors import ConfigError, nearest
from histolumen.settings import Settings
from histolumen.vision import timm


class BackboneSettings(Settings):
    """The feature extractor that every method shares."""

    name: str = "efficientnet_lite0"
    """`efficientnet_lite0` / `1` / `2` (weights come with a package), `resnet18`, `resnet18_deep` (the paper's), a
    name that `histolumen encoders` lists, or any timm name."""
    output_stride: Literal[8, 16, 32] = 32
    """Input pixels per feature position: 32 uses the whole network, 16 and 8 cut it after its last features of that
    stride (finer maps, less computation). A vision transformer always has the stride of its patches."""
    block: int | None = None
    """Vision transformers: the block whose features are used, counted from 0, or from the end if negative; null: the
    last. Later blocks are not computed."""
    weights: str = "auto"
    """`auto`: from the package or the hub; `none`: random; or a .safetensors / .pth file."""
    statistics: Statistics = "shared"
    """BatchNorm running statistics of whole, foreground and background images: one set (`shared`, the paper), one each
    (`separate`), or never updated (`frozen`). No effect on networks without BatchNorm."""
    freeze: int = Field(default=0, ge=0)
    """First stages that keep the weights they were loaded with: no gradients, BatchNorm with its running statistics.
    Stage 1 is the stem, stage n ends with the last layer of stride 2^n, or with the n-th block of a vision
    transformer. Saves time and memory in training. 0: all weights are trained (the paper)."""
    mean: tuple[float, float, float] | None = None
    """Input mean per channel, for images in [0, 1]; null: that of timm's or the packaged weights. Set it if your
    weights file needs another."""
    std: tuple[float, float, float] | None = None
    """Input standard deviation per channel; null: that of timm's or the packaged weights."""


class Backbone(nn.Module):
    """A network without its head, with the input scaling that its weights expect."""

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
        self.size_multiple = trunk.size_multiple if isinstance(trunk, Trunk) else SIZE_MULTIPLE
        """Image sides must be multiples of this."""
        self.single_stride = isinstance(trunk, Trunk) and trunk.single_stride
        """Whether all layers have the same resolution, as in a plain vision transformer."""
        self.notes: list[str] = []
        """Messages for the user about settings that have no effect."""
        self.register_buffer("offset", torch.zeros(()))  # measured once by `build_backbone`; saved with the weights
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    @property
    def geometry(self) -> FeatureGeometry:
        """Where on the image the feature positions are centred."""
        return FeatureGeometry(self.stride, self.offset)

    @property
    def tells_cases_apart(self) -> bool:
        """Whether X, X+ and X- need passes of their own in training: some layer has statistics of the batch or case."""
        return any(layer.tells_cases_apart for layer in self.trunk.modules() if isinstance(layer, CaseBatchNorm))

    def normalise(self, images: Tensor) -> Tensor:
        """Scale images in [0, 1] as the network expects; masked pixels (zero afterwards) have the mean colour."""
        return (images - self.mean) / self.std

    def scaling_only(self) -> "Backbone":
        """The same input scaling without a network, for methods with their own network."""
        mean, std = (tuple(value.flatten().tolist()) for value in (self.mean, self.std))
        return Backbone(NoTrunk(), 1, "shared", mean, std)

    def forward(self, normalised: Tensor, case: Case = Case.WHOLE) -> Tensor:
        """Features [B, channels, h, w] of images scaled by `normalise`."""
        with case_of(case):
            return self.trunk(normalised)

    def with_layers(self, normalised: Tensor, layers: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
        """Features of whole images, and the outputs of inner `layers` of the trunk in the order they run."""
        with tapped(self.trunk, *layers) as inner:
            features = self(normalised)
        return features, inner

    def up_to(self, layer: str, normalised: Tensor) -> Tensor:
        """Features of whole images at an inner `layer` of the trunk; later layers are not run."""
        with case_of(Case.WHOLE):
            return run_up_to(self.trunk, layer, normalised)

    def after(self, layer: str, features: Tensor, case: Case = Case.WHOLE) -> Tensor:
        """Features [B, channels, h, w] from those of an inner `layer`."""
        with ExitStack() as stack:
            stack.enter_context(case_of(None))  # BatchNorm passes the placeholder of earlier layers unchanged
            return run_after(self.trunk, layer, features, lambda: stack.enter_context(case_of(case)))


def build_backbone(settings: BackboneSettings, *, load_weights: bool = True) -> Backbone:
    """Build the backbone that `settings` describes.

    Args:
        settings: name, stride, weights, statistics.
        load_weights: False if a checkpoint is loaded afterwards.
    """
    encoder = CATALOGUE.get(settings.name, Encoder(settings.name))
    if not timm.is_model(encoder.timm_name):
        known = [*CATALOGUE, *timm.list_models()]
        raise ConfigError(f"unknown backbone '{settings.name}'; {nearest(settings.name, known)}")
    trunk = _trunk(settings, encoder, load_weights=load_weights)
    mean, std = encoder.scaling or _published_scaling(encoder.timm_name)
    backbone = Backbone(trunk, trunk.stride, settings.statistics, settings.mean or mean, settings.std or std)
    backbone.notes += _notes(settings, backbone)
    if load_weights:
        backbone.offset.fill_(measure_offset(trunk, trunk.stride) if trunk.offset is None else trunk.offset)
    return backbone


def _trunk(settings: BackboneSettings, encoder: Encoder, *, load_weights: bool) -> Trunk:
    """Create the network, load its weights, then cut it."""
    architecture = Architecture(settings.name, encoder.timm_name, encoder.options)
    cut = Cut(settings.output_stride, settings.block)
    family = family_of(architecture)
    family.check(architecture, cut)
    automatic = load_weights and settings.weights == "auto"
    if automatic and not encoder.packaged:
        repository = encoder.hub or hub_repository(encoder.timm_name)
        with hub_errors_as_weights_error(settings.name, repository, gated=encoder.gated):
            network = family.create(architecture, cut, pretrained=encoder.hub is None)
            if encoder.hub is not None:
                stored = hub_tensors(encoder.hub, *([encoder.file] if encoder.file else []))
                weights.fill(network, encoder.with_timm_names(stored), encoder.hub)
    else:
        network = family.create(architecture, cut, pretrained=False)
    if automatic and encoder.packaged:
        weights.load_packaged(network, settings.name)
    elif load_weights and settings.weights not in {"auto", "none"}:
        path = Path(settings.weights)
        weights.fill(network, encoder.with_timm_names(weights.read_tensors(path)), str(path))
    trunk = family.trunk(network, architecture, cut)
    trunk.required_multiple = find_required_multiple(trunk, settings.name)
    return trunk


def _notes(settings: BackboneSettings, backbone: Backbone) -> list[str]:
    notes = []
    if settings.statistics != "shared" and not any(isinstance(layer, CaseBatchNorm) for layer in backbone.modules()):
        notes.append(
            f"backbone {settings.name} has no BatchNorm: backbone.statistics={settings.statistics} has no effect"
        )
    asked = settings.output_stride
    if asked not in {backbone.stride, BackboneSettings.model_fields["output_stride"].default}:
        notes.append(
            f"backbone {settings.name} has patches of {backbone.stride} pixels: backbone.output_stride={asked} has no "
            "effect"
        )
    return notes


def _published_scaling(timm_name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    published = timm.get_pretrained_cfg(timm_name)
    return (published.mean, published.std) if published else ((0.5,) * 3, (0.5,) * 3)
