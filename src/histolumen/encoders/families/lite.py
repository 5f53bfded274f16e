"""EfficientNet-Lite, cut at the first activation after its linear bottlenecks."""

from typing import cast

from torch import Tensor, nn

from histolumen.encoders.families.base import Architecture, Cut, register_family
from histolumen.encoders.families.stages import Stages, WholeTrunk
from histolumen.encoders.trunk import Trunk

_STAGES = {8: 3, 16: 5}  # stride -> number of stages up to the last block of that stride
_CLUSTERED = 3, 4  # stages of stride 16 whose features are used for tissue clusters


class LiteTrunk(Trunk):
    """An EfficientNet-Lite up to the first activation after its last block of a stride.

    Its blocks end in *linear* bottlenecks. Class maps of these features rarely come near their minimum, so thresholding
    the min-max normalised map (Eq. 8) marks almost the whole image. After the expansion and ReLU6 of the next block,
    features are sparse and non-negative, as at the end of the network.

    Tissue clusters use the bottlenecks themselves, where angles between positions are most informative.
    """

    def __init__(self, network: nn.Module, stride: int):
        super().__init__()
        stages, count = cast("nn.Sequential", network.blocks), _STAGES[stride]
        next_block = cast("nn.Sequential", stages[count])[0]
        self.stem = nn.Sequential(network.conv_stem, network.bn1)  # type: ignore[arg-type] # timm's layers
        self.stages = stages[:count]
        self.expansion = nn.Sequential(next_block.conv_pw, next_block.bn1)  # type: ignore[arg-type]
        self.channels = cast("nn.Conv2d", next_block.conv_pw).out_channels
        self.stride = stride
        clustered = _CLUSTERED if stride == 16 else (count - 1,)
        self.grouping_layers = tuple(f"stages.{stage}" for stage in clustered)

    def features(self, images: Tensor) -> Tensor:
        return self.expansion(self.stages(self.stem(images)))


@register_family
class Lite(Stages):
    """EfficientNet-Lite 0 to 4."""

    def fits(self, architecture: Architecture) -> bool:
        return "efficientnet_lite" in architecture.timm_name

    def trunk(self, network: nn.Module, architecture: Architecture, cut: Cut) -> Trunk:
        del architecture
        if cut.stride in _STAGES:
            return LiteTrunk(network, cut.stride)
        whole = WholeTrunk(network, cut.stride)
        whole.grouping_layers = tuple(f"network.blocks.{stage}" for stage in _CLUSTERED)
        return whole
