"""Where feature positions lie on the image, and resizing maps to the image accordingly."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.errors import ConfigError

FLIPS = ((), (3,), (2,), (2, 3))
"""Axes of images [B, C, H, W] to flip: none, horizontal, vertical, both. The mean over all flips is centred, whatever
padding a network uses."""
_FLAT = 1e-6  # a map with a range below this counts as constant
_PROBE, _PATCH = 224, 32  # sides of the probe image, a size that all usual networks accept, and of its noise patch


@dataclass(frozen=True)
class FeatureGeometry:
    """Where feature positions lie on the image: position i is centred on pixel `stride * i + offset`.

    `corner_to_corner`: maps of an image in memory are stretched from corner to corner instead, as in the paper.
    """

    stride: float
    offset: float | Tensor
    corner_to_corner: bool = False

    @classmethod
    def of_cells(cls, side: int) -> "FeatureGeometry":
        """Positions that each cover a square of `side` pixels, starting in the corner of the image."""
        return cls(side, (side - 1) / 2)

    def scaled(self, factor: float) -> "FeatureGeometry":
        """The same positions on an image whose sides are multiplied by `factor`."""
        return self if factor == 1 else replace(self, stride=self.stride * factor, offset=self.offset * factor)


@torch.no_grad()
def measure_offset(network: nn.Module, stride: int) -> float:
    """Measure the centre of a feature's receptive field relative to `stride * index`.

    In theory it is 0 for symmetric padding, half a stride for patches, and nearly a full stride for TensorFlow's
    padding, but trained kernels partly compensate for it. A patch of noise is placed in the centre of an image; the
    centre of mass of the features that change must coincide with the centre of the patch.
    """
    was_training = network.training
    network.eval()
    noise = 2 * torch.rand(2, 3, _PROBE, _PROBE, generator=torch.Generator().manual_seed(0)) - 1
    plain = torch.stack([torch.zeros_like(noise[0]), torch.full_like(noise[0], 0.8), noise[0]])
    marked, low, high = plain.clone(), _PROBE // 2 - _PATCH // 2, _PROBE // 2 + _PATCH // 2
    marked[..., low:high, low:high] = noise[1, :, low:high, low:high]
    try:
        features = network(torch.cat([plain, marked]))
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(f"this backbone does not accept arbitrary image sizes ({error}); choose another") from error
    network.train(was_training)
    if features.ndim != 4 or features.shape[2:] != (_PROBE // stride,) * 2:
        raise ConfigError(
            f"this backbone returns features of shape {list(features.shape[1:])}, not a map of stride {stride}; choose "
            "a convolutional one that has it"
        )
    before, after = features.chunk(2)
    change = (after - before).abs().mean(1)  # [images, h, w]
    change = (change / change.sum((1, 2), keepdim=True)).mean(0)
    positions = torch.arange(change.shape[0], dtype=change.dtype)
    centre = float((change.sum(0) @ positions + change.sum(1) @ positions) / 2)
    offset = (_PROBE - 1) / 2 - stride * centre
    return offset if math.isfinite(offset) else (stride - 1) / 2


def enlarge(maps: Tensor, size: tuple[int, int], geometry: FeatureGeometry) -> Tensor:
    """Resize maps [B, C, h, w] to the image, bilinearly.

    Args:
        maps: at feature resolution.
        size: height and width of the image.
        geometry: where the positions lie on the image.
    """
    if geometry.corner_to_corner:
        return F.interpolate(maps, size=size, mode="bilinear", align_corners=True)
    stride = int(geometry.stride)
    if geometry == FeatureGeometry.of_cells(stride):  # torch's own interpolation is fastest
        return _enlarge_cells(maps, size, stride)
    down, across = (
        interpolation(full, small, geometry, maps) for full, small in zip(size, maps.shape[2:], strict=True)
    )
    return down @ maps @ across.T


def _enlarge_cells(maps: Tensor, size: tuple[int, int], side: int) -> Tensor:
    """Cells to pixels: cells beyond the image are cropped, missing ones repeat the border."""
    if side > 1:
        maps = F.interpolate(maps, scale_factor=side, mode="bilinear", align_corners=False)
    height, width = size
    missing = (0, max(width - maps.shape[3], 0), 0, max(height - maps.shape[2], 0))
    return F.pad(maps, missing, mode="replicate")[..., :height, :width] if any(missing) else maps[..., :height, :width]


def min_max(maps: Tensor) -> Tensor:
    """Min-max normalise each map to [0, 1]; a constant map becomes zero."""
    low, high = maps.amin((2, 3), keepdim=True), maps.amax((2, 3), keepdim=True)
    return stretch(maps, low, high)


def stretch(maps: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Scale values from [low, high] to [0, 1]; if these are equal, all values are zero."""
    return (maps - low) / (high - low + _FLAT)


def interpolation(pixels: int, positions: int, geometry: FeatureGeometry, like: Tensor) -> Tensor:
    """Matrix [pixels, positions] of linear interpolation weights, constant beyond the outermost positions."""
    place = (torch.arange(pixels, device=like.device, dtype=like.dtype) - geometry.offset) / geometry.stride
    place = place.clamp(0, positions - 1)
    nodes = torch.arange(positions, device=like.device, dtype=like.dtype)
    return F.relu(1 - (place[:, None] - nodes).abs())
