"""Networks cut off where their features have the wanted stride.

Cutting beats dilating here: half-way features are local, which is what a mask needs, and the rest of the network is not
computed at all.
"""

from typing import Any, cast

from torch import Tensor, nn

from histolumen.errors import ConfigError
from histolumen.vision import timm

FeatureListNet = timm.models.FeatureListNet
ResNet = timm.models.resnet.ResNet
FULL_STRIDE = 32
default_cfgs = timm.models.generate_default_cfgs(  # looked up by timm under this name
    {"resnet18_deep.untrained": {"mean": (0.5,) * 3, "std": (0.5,) * 3, "first_conv": "conv1.0", "classifier": "fc"}}
)


@timm.models.register_model
def resnet18_deep(pretrained: bool = False, **options: Any) -> ResNet:
    """The paper's backbone: a ResNet18 whose stem is three 3x3 convolutions (64 stride 2, 64, 128)."""
    shape = {"block": timm.models.resnet.BasicBlock, "layers": (2, 2, 2, 2), "stem_type": "deep", "stem_width": 64}
    return timm.models.build_model_with_cfg(ResNet, "resnet18_deep", pretrained, **shape, **options)


class Trunk(nn.Module):
    """Images in, features [B, channels, h, w] out."""

    channels: int
    grouping_layers: tuple[str, ...] = ("",)
    """Layers, all of the trunk's own stride, whose features show the tissue's natural groups; "" is its output."""

    def forward(self, images: Tensor) -> Tensor:
        raise NotImplementedError


class NoTrunk(Trunk):
    """No network: the image is its own features."""

    channels = 3

    def forward(self, images: Tensor) -> Tensor:
        return images


class WholeTrunk(Trunk):
    """A network up to its last features."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.channels = cast("int", network.num_features)
        self.channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"

    def forward(self, images: Tensor) -> Tensor:
        features = self.network.forward_features(images)  # type: ignore[operator] # timm's interface
        return _channels_first(features, self.channels_last)


class StageTrunk(Trunk):
    """A network up to its deepest features of one stride, by timm's own cutting."""

    def __init__(self, network: FeatureListNet):
        super().__init__()
        self.network = network
        self.channels = cast("list[int]", network.feature_info.channels())[-1]
        self.channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"

    def forward(self, images: Tensor) -> Tensor:
        return _channels_first(self.network(images)[-1], self.channels_last)


class LiteTrunk(Trunk):
    """An EfficientNet-Lite up to the first activation after its last block of stride 16.

    Its blocks end in *linear* bottlenecks. Class maps of those hardly ever come near their minimum, and a mask that
    thresholds the min-max-normalised map (Eq. 8) then swallows the image. One step further, after the expansion and
    ReLU6 of the next block, features are sparse and non-negative, as they are at the end of the network.

    Natural groups are another matter: angles between positions mean most in the bottlenecks themselves.
    """

    grouping_layers = ("stages.3", "stages.4")

    def __init__(self, network: nn.Module):
        super().__init__()
        stages = cast("nn.Sequential", network.blocks)
        following = cast("nn.Sequential", stages[5])[0]
        self.stem = nn.Sequential(network.conv_stem, network.bn1)  # type: ignore[arg-type] # timm's layers
        self.stages = stages[:5]
        self.expansion = nn.Sequential(following.conv_pw, following.bn1)  # type: ignore[arg-type]
        self.channels = cast("nn.Conv2d", following.conv_pw).out_channels

    def forward(self, images: Tensor) -> Tensor:
        return self.expansion(self.stages(self.stem(images)))


def stage_network(name: str, stride: int, *, pretrained: bool) -> FeatureListNet:
    """timm's `name` without what comes after its deepest features of `stride`."""
    try:
        probe = cast("Any", timm.create_model(name, features_only=True))
        strides = probe.feature_info.reduction()
        index = max(i for i, found in enumerate(strides) if found == stride)
    except (ValueError, RuntimeError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"backbone {name} has no features of stride {stride}; use --set backbone.output_stride={FULL_STRIDE}"
        ) from error
    network = timm.create_model(name, features_only=True, out_indices=(index,), pretrained=pretrained)
    return cast("FeatureListNet", network)


def _channels_first(features: Tensor, channels_last: bool) -> Tensor:
    return features.permute(0, 3, 1, 2) if channels_last and features.ndim == 4 else features
