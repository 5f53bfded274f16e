"""A mask decoder on features of several strides: deep ones carry the content, early ones the boundaries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.tapping import layer_of_stride, tapped
from histolumen.errors import ConfigError
from histolumen.nets.decoder import GUIDE_CHANNELS, at_least, finer_strides

_PROBE = 64
_COLOURS = 3
_FINE = 8  # coarsest stride of features that show the boundary of a gland


class PyramidDecoder(nn.Module):
    """Foreground logits at the finest of its strides.

    From coarse to fine, features are projected to `width` channels, added to the upsampled output of the coarser level,
    and convolved. Where the backbone has no features of a stride (a vision transformer only has that of its patches),
    the image downsampled to that stride is used.

    Args:
        backbone: provides the features; not stored.
        finest: stride of the finest features; features of the backbone's own stride are always used.
        width: number of hidden channels.
    """

    def __init__(self, backbone: Backbone, finest: int, width: int):
        super().__init__()
        inner = finer_strides(backbone.stride, finest)
        layer_at = dict(zip(inner, layers_at(backbone, inner), strict=True))
        self.layers = tuple(layer for layer in layer_at.values() if layer is not None)
        self.guided = tuple(stride for stride, layer in layer_at.items() if layer is None)
        self.stride = min([*inner, backbone.stride])
        self._inner, self._coarsest = tuple(inner), backbone.stride
        tapped_channels = iter(channels_of(backbone, self.layers))
        channels = [None if stride in self.guided else next(tapped_channels) for stride in inner]  # fine to coarse
        self.level_channels = tuple(_COLOURS if count is None else count for count in channels) or (backbone.channels,)
        """Channels of the levels finer than the backbone's stride, fine to coarse; without any, of its features."""
        self.fine_levels = max(1, sum(stride <= _FINE for stride in inner))
        """Number of levels that show boundaries: those of strides up to 8, or the finest alone."""
        self.enter = nn.ModuleList(_entry(count, width) for count in [*channels, backbone.channels])
        self.mix = nn.ModuleList(_convolution(width) for _ in self.enter)
        self.leave = nn.Conv2d(width, 1, kernel_size=1)

    def with_guides(self, inner: Sequence[Tensor], images: Tensor) -> list[Tensor]:
        """The levels finer than the backbone's stride, fine to coarse: its inner layers, or downsampled images."""
        if not self.guided:
            return list(inner)
        covered = [-(-side // self._coarsest) * self._coarsest for side in images.shape[2:]]
        padded, layers = at_least(images, *covered), iter(inner)
        return [_downsampled(padded, stride) if stride in self.guided else next(layers) for stride in self._inner]

    def forward(self, features: Tensor, inner: Sequence[Tensor]) -> Tensor:
        """Logits [B, 1, h, w] from the backbone's features and the levels of `with_guides`, fine to coarse."""
        levels = zip(self.enter, self.mix, [*inner, features], strict=True)
        x: Tensor | None = None
        for enter, mix, level in reversed(list(levels)):
            entered = enter(level)
            if x is not None:
                entered = entered + F.interpolate(x, size=entered.shape[2:], mode="bilinear", align_corners=False)
            x = mix(entered)
        return self.leave(x)

    def mask(self, logits: Tensor, height: int, width: int) -> Tensor:
        """Soft mask [B, 1, height, width]; logits beyond the image are cropped."""
        enlarged = F.interpolate(logits, scale_factor=self.stride, mode="bilinear", align_corners=False)
        return torch.sigmoid(enlarged[..., :height, :width])


def _entry(channels: int | None, width: int) -> nn.Module:
    """Projection of features, or of an image (`channels` None), to `width` channels."""
    if channels is not None:
        return nn.Conv2d(channels, width, kernel_size=1)
    return nn.Sequential(
        nn.Conv2d(_COLOURS, GUIDE_CHANNELS, kernel_size=3, padding=1), nn.Conv2d(GUIDE_CHANNELS, width, kernel_size=1)
    )


def _convolution(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )


def _downsampled(images: Tensor, stride: int) -> Tensor:
    size = [side // stride for side in images.shape[2:]]
    return F.interpolate(images, size=size, mode="bilinear", antialias=True)


def layers_at(backbone: Backbone, strides: Sequence[int]) -> list[str | None]:
    """The backbone's last layer of each stride, or None."""
    return [_layer(backbone, stride) for stride in strides]


def _layer(backbone: Backbone, stride: int) -> str | None:
    if backbone.single_stride:
        return None
    try:
        return layer_of_stride(backbone.trunk, stride)
    except ConfigError:
        return None


@torch.no_grad()
def channels_of(backbone: Backbone, layers: Sequence[str]) -> list[int]:
    """Number of channels of each layer."""
    if not layers:
        return []
    was_training = backbone.training
    with tapped(backbone.trunk, *layers) as outputs:
        backbone.eval()(torch.zeros(1, 3, _PROBE, _PROBE))
    backbone.train(was_training)
    return [output.shape[1] for output in outputs]
