"""A decoder from coarse features to a fine foreground map, guided by the image; for any backbone."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.nets.unet import double_convolution

FINE_STRIDE = 4
GUIDE_CHANNELS = 16


class Decoder(nn.Module):
    """Doubles the resolution down to a stride of 4 pixels, or the nearest above it that whole halves of `stride` reach.

    Each step concatenates the image, downsampled to that resolution: features carry content, colours show boundaries.

    Args:
        channels: channels of the features.
        stride: stride of the features.
        width: number of hidden channels.
    """

    def __init__(self, channels: int, stride: int, width: int):
        super().__init__()
        finer = finer_strides(stride, FINE_STRIDE)
        steps = len(finer)
        self.stride, self.fine_stride = stride, min([*finer, stride])
        self.enter = nn.Conv2d(channels, width, kernel_size=1)
        self.guides = nn.ModuleList(nn.Conv2d(3, GUIDE_CHANNELS, kernel_size=3, padding=1) for _ in range(steps))
        self.steps = nn.ModuleList(double_convolution(width + GUIDE_CHANNELS, width) for _ in range(steps))
        self.leave = nn.Conv2d(width, 2, kernel_size=1)

    def forward(self, features: Tensor, images: Tensor) -> Tensor:
        """Logits of background and foreground at `fine_stride`.

        If the features extend beyond the image, so do the logits.
        """
        x = self.enter(features)
        images = self._covered(images, features)
        for guide, step in zip(self.guides, self.steps, strict=True):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = step(torch.cat([x, guide(self._shrunk(images, x))], dim=1))
        return self.leave(x)

    # the two steps whose sizes are computed; `deploy` has other versions, for graphs

    def _covered(self, images: Tensor, features: Tensor) -> Tensor:
        """The images, padded or cropped to the pixels that the features cover."""
        covered = [self.stride * side for side in features.shape[2:]]
        return at_least(images, *covered)[..., : covered[0], : covered[1]]

    def _shrunk(self, images: Tensor, like: Tensor) -> Tensor:
        """The images at the size of `like`."""
        return F.interpolate(images, size=like.shape[2:], mode="bilinear", antialias=True)


def finer_strides(stride: int, finest: int) -> list[int]:
    """Whole-numbered halves of a stride, not below `finest`; fine to coarse, without the stride itself."""
    halves: list[int] = []
    while stride % 2 == 0 and stride // 2 >= finest:
        stride //= 2
        halves.insert(0, stride)
    return halves


def at_least(images: Tensor, height: int, width: int) -> Tensor:
    """Images padded at their lower and right borders to at least this size."""
    down, across = max(height - images.shape[2], 0), max(width - images.shape[3], 0)
    return F.pad(images, (0, across, 0, down), mode="replicate") if down or across else images
