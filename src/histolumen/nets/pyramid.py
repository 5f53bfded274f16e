"""A mask decoder fed by several strides: deep features say what is there, early ones say where it ends."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.nets.backbones import Backbone
from histolumen.nets.tapping import layer_of_stride, tapped

_STRIDES = (4, 8, 16)
_PROBE = 64


class PyramidDecoder(nn.Module):
    """Logits of the foreground at the finest of its strides.

    From coarse to fine: features are brought to `width` channels, added to what came from below, and mixed.

    Args:
        backbone: whose features it reads; not kept.
        finest: stride of the finest features; those of the backbone's own stride are always read.
        width: channels inside.
    """

    def __init__(self, backbone: Backbone, finest: int, width: int):
        super().__init__()
        inner = [stride for stride in _STRIDES if finest <= stride < backbone.stride]
        self.layers = tuple(layer_of_stride(backbone.trunk, stride) for stride in inner)
        self.stride = min([*inner, backbone.stride])
        channels = [*_channels(backbone, self.layers), backbone.channels]  # fine to coarse
        self.enter = nn.ModuleList(nn.Conv2d(count, width, kernel_size=1) for count in channels)
        self.mix = nn.ModuleList(_convolution(width) for _ in channels)
        self.leave = nn.Conv2d(width, 1, kernel_size=1)

    def forward(self, features: Tensor, inner: Sequence[Tensor]) -> Tensor:
        """Logits [B, 1, h, w] from the backbone's features and those of its inner layers, fine to coarse."""
        levels = zip(self.enter, self.mix, [*inner, features], strict=True)
        x: Tensor | None = None
        for enter, mix, level in reversed(list(levels)):
            entered = enter(level)
            if x is not None:
                entered = entered + F.interpolate(x, size=entered.shape[2:], mode="bilinear", align_corners=False)
            x = mix(entered)
        return self.leave(x)

    def mask(self, logits: Tensor, height: int, width: int) -> Tensor:
        """Soft mask [B, 1, height, width] of images whose logits may reach a little beyond them."""
        enlarged = F.interpolate(logits, scale_factor=self.stride, mode="bilinear", align_corners=False)
        return torch.sigmoid(enlarged[..., :height, :width])


def _convolution(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )


@torch.no_grad()
def _channels(backbone: Backbone, layers: Sequence[str]) -> list[int]:
    was_training = backbone.training
    with tapped(backbone.trunk, *layers) as outputs:
        backbone.eval()(torch.zeros(1, 3, _PROBE, _PROBE))
    backbone.train(was_training)
    return [output.shape[1] for output in outputs]
