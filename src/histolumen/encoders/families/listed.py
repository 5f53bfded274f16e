"""Networks that timm can cut only at creation (`features_only`): DenseNet, HRNet, VGG, NFNet and others."""

from typing import Any, cast

from torch import Tensor, nn

from histolumen.encoders.families.base import Architecture, Cut, register_family
from histolumen.encoders.families.stages import Stages, WholeTrunk, deepest, is_whole
from histolumen.encoders.trunk import Trunk
from histolumen.vision import timm


class ListTrunk(Trunk):
    """The last feature map of a `features_only` network."""

    def __init__(self, network: nn.Module, stride: int):
        super().__init__()
        self.network, self.stride = network, stride
        info = cast("Any", network.feature_info)
        self.channels = cast("int", info.channels()[-1])

    def features(self, images: Tensor) -> Tensor:
        return self.network(images)[-1]


@register_family
class Listed(Stages):
    """Networks with features of several strides but without `forward_intermediates`."""

    def fits(self, architecture: Architecture) -> bool:
        return not architecture.has_intermediates and len(set(architecture.strides)) > 1

    def create(self, architecture: Architecture, cut: Cut, *, pretrained: bool) -> nn.Module:
        if is_whole(architecture, cut):
            return super().create(architecture, cut, pretrained=pretrained)
        level = deepest(architecture, cut)
        return timm.create_model(
            architecture.timm_name,
            features_only=True,
            out_indices=(level,),
            pretrained=pretrained,
            **self.all_options(architecture),
        )

    def trunk(self, network: nn.Module, architecture: Architecture, cut: Cut) -> Trunk:
        return WholeTrunk(network, cut.stride) if is_whole(architecture, cut) else ListTrunk(network, cut.stride)
