"""Plain vision transformers: every block has the stride of the patches."""

from typing import Any

from torch import Tensor, nn

from histolumen.encoders.families.base import Architecture, Cut, Family, pruned, register_family
from histolumen.encoders.trunk import Trunk
from histolumen.errors import ConfigError


class PatchTrunk(Trunk):
    """A transformer up to one of its blocks: its patch tokens as a map, normalised by the network's final norm.

    Class and register tokens take part in the attention but not in the map.
    """

    single_stride = True

    def __init__(self, network: nn.Module, block: int, patch: int, channels: int):
        super().__init__()
        self.network = pruned(network, block, keep_norm=True)
        self.block, self.channels = block, channels
        self.stride = self.required_multiple = patch
        self.offset = (patch - 1) / 2

    def features(self, images: Tensor) -> Tensor:
        intermediates = self.network.forward_intermediates(  # type: ignore[operator] # timm's interface
            images, indices=[self.block], norm=True, output_fmt="NCHW", intermediates_only=True
        )
        return intermediates[-1]


@register_family
class VisionTransformers(Family):
    """Networks whose blocks all have the same stride, with `forward_intermediates`."""

    def fits(self, architecture: Architecture) -> bool:
        return architecture.has_intermediates and len(set(architecture.strides)) == 1

    def check(self, architecture: Architecture, cut: Cut) -> None:
        blocks = len(architecture.strides)
        if cut.block is not None and not -blocks <= cut.block < blocks:
            raise ConfigError(
                f"backbone.block {cut.block}: {architecture.name} has blocks 0 to {blocks - 1} (or -1 to -{blocks}, "
                "counted from the end)"
            )

    def all_options(self, architecture: Architecture) -> dict[str, Any]:
        any_size = {"dynamic_img_size": True} if architecture.accepts("dynamic_img_size") else {}
        return {**architecture.options, **any_size}

    def trunk(self, network: nn.Module, architecture: Architecture, cut: Cut) -> Trunk:
        blocks = len(architecture.strides)
        block = blocks - 1 if cut.block is None else cut.block % blocks
        return PatchTrunk(network, block, architecture.strides[block], architecture.channels(block))
