"""The paper's U-Net: no pre-trained encoder, widths 16 to 512 in five steps of stride 2, 14,154,706 parameters."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_WIDTHS = (16, 32, 64, 128, 256, 512)

Upsampling = Literal["nearest", "bilinear"]
"""`nearest`: a level of the decoder convolves, then repeats each value. `bilinear`: it interpolates, then convolves."""


class UNet(nn.Module):
    """From images of any size to logits of background and foreground [B, 2, H, W]."""

    def __init__(self, upsampling: Upsampling = "nearest") -> None:
        super().__init__()
        steps = list(pairwise(_WIDTHS))
        self.first = double_convolution(3, _WIDTHS[0])
        self.down = nn.ModuleList(double_convolution(narrow, wide, stride=2) for narrow, wide in steps)
        self.up = nn.ModuleList(UpStep(wide, narrow, upsampling) for narrow, wide in reversed(steps))
        self.last = nn.Conv2d(_WIDTHS[0], 2, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of background and foreground."""
        skips = [self.first(images)]
        for step in self.down:
            skips.append(step(skips[-1]))
        x = skips.pop()
        for step in self.up:
            x = step(x, skips.pop())
        return self.last(x)


class UpStep(nn.Module):
    """Convolve at the same width, double the resolution, concatenate the skip connection, and halve the width."""

    def __init__(self, wide: int, narrow: int, upsampling: Upsampling):
        super().__init__()
        self.upsampling: Upsampling = upsampling
        self.before = double_convolution(wide, wide)
        self.after = double_convolution(wide + narrow, narrow)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """One level up, at the size of `skip`."""
        if self.upsampling == "nearest":
            enlarged = self._repeated(self.before(x), skip)
        else:
            enlarged = self.before(F.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False))
        return self.after(torch.cat([enlarged, skip], dim=1))

    def _repeated(self, x: Tensor, like: Tensor) -> Tensor:
        """Each value repeated, at the size of `like`; `deploy` has another version, for graphs."""
        return F.interpolate(x, size=like.shape[2:], mode="nearest-exact")


def double_convolution(channels: int, width: int, stride: int = 1) -> nn.Sequential:
    """Two blocks of 3x3 convolution without bias, BatchNorm and ReLU; `stride` applies to the first."""
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )
