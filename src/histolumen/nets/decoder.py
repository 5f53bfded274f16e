"""From coarse features to a fine foreground map, with the image itself as a guide; for any backbone."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.nets.unet import double_convolution

FINE_STRIDE = 4
_GUIDE = 16


class Decoder(nn.Module):
    """Doubles the resolution until one position stands for 4 x 4 pixels.

    At each step the image, shrunk to that resolution, joins in: features say what is there, colours say where it ends.

    Args:
        channels: of the features.
        stride: of the features.
        width: channels inside.
    """

    def __init__(self, channels: int, stride: int, width: int):
        super().__init__()
        steps = max(int(math.log2(stride / FINE_STRIDE)), 0)
        self.stride = stride
        self.enter = nn.Conv2d(channels, width, kernel_size=1)
        self.guides = nn.ModuleList(nn.Conv2d(3, _GUIDE, kernel_size=3, padding=1) for _ in range(steps))
        self.steps = nn.ModuleList(double_convolution(width + _GUIDE, width) for _ in range(steps))
        self.leave = nn.Conv2d(width, 2, kernel_size=1)

    def forward(self, features: Tensor, images: Tensor) -> Tensor:
        """Logits of background and foreground [B, 2, h * stride / 4, w * stride / 4], one per 4 x 4 pixels.

        The last features may reach beyond the image; then so do the logits.
        """
        x = self.enter(features)
        covered = [self.stride * side for side in features.shape[2:]]
        images = at_least(images, *covered)[..., : covered[0], : covered[1]]
        for guide, step in zip(self.guides, self.steps, strict=True):
            size = [2 * side for side in x.shape[2:]]
            seen = F.interpolate(images, size=size, mode="bilinear", antialias=True)
            x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
            x = step(torch.cat([x, guide(seen)], dim=1))
        return self.leave(x)


def at_least(images: Tensor, height: int, width: int) -> Tensor:
    """Images continued beyond their lower and right borders until they have that size."""
    down, across = max(height - images.shape[2], 0), max(width - images.shape[3], 0)
    return F.pad(images, (0, across, 0, down), mode="replicate") if down or across else images
