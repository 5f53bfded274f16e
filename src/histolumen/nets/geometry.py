"""Where on the image a feature position looks, and laying maps over images accordingly."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.errors import ConfigError

FLIPS = ((), (3,), (2,), (2, 3))
"""Axes of images [B, C, H, W]: as they are, mirrored, upside down, both. Their mean lies centred, however a network
pads."""
_FLAT = 1e-6  # a map whose range is below this shows no preference
_PROBE, _PATCH = 224, 32  # side of the probing image, which every usual network takes, and of its marked middle


@dataclass(frozen=True)
class Grid:
    """Feature i is centred on input pixel `stride * i + offset`, pixels counted from 0."""

    stride: float
    offset: float | Tensor


@torch.no_grad()
def measure_offset(network: nn.Module, stride: int) -> float:
    """Where, with these weights, a feature looks relative to `stride * index`.

    By geometry it is 0 for symmetric padding, half a stride for patches, and nearly a whole one for TensorFlow's
    padding, which trained kernels partly make up for. A patch of noise in the middle of an image shows it: the centre
    of mass of the features that change must lie over the patch.
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
        raise ConfigError(f"this backbone does not take images of any size ({error}); choose another") from error
    network.train(was_training)
    if features.ndim != 4 or features.shape[2:] != (_PROBE // stride,) * 2:
        raise ConfigError(
            f"this backbone gives features of shape {list(features.shape[1:])}, not a map of stride {stride}; choose a "
            "convolutional one that has it"
        )
    before, after = features.chunk(2)
    change = (after - before).abs().mean(1)  # [images, h, w]
    change = (change / change.sum((1, 2), keepdim=True)).mean(0)
    positions = torch.arange(change.shape[0], dtype=change.dtype)
    centre = float((change.sum(0) @ positions + change.sum(1) @ positions) / 2)
    offset = (_PROBE - 1) / 2 - stride * centre
    return offset if math.isfinite(offset) else (stride - 1) / 2


def enlarge(maps: Tensor, size: tuple[int, int], grid: Grid | None = None) -> Tensor:
    """Maps [B, C, h, w] at the size of the image, bilinearly.

    Args:
        maps: at feature resolution.
        size: height and width of the image.
        grid: lays each position over the pixels it looks at; None stretches corner to corner, as the paper does.
    """
    if grid is None:
        return F.interpolate(maps, size=size, mode="bilinear", align_corners=True)
    down, across = (_interpolation(full, small, grid, maps) for full, small in zip(size, maps.shape[2:], strict=True))
    return down @ maps @ across.T


def min_max(maps: Tensor) -> Tensor:
    """Each map stretched to [0, 1]; one that shows no preference becomes all zero."""
    low, high = maps.amin((2, 3), keepdim=True), maps.amax((2, 3), keepdim=True)
    return stretch(maps, low, high)


def stretch(maps: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Values from `low` to `high` to [0, 1]; where these are the same, there is no preference and all are zero."""
    return (maps - low) / (high - low + _FLAT)


def _interpolation(pixels: int, positions: int, grid: Grid, like: Tensor) -> Tensor:
    """Matrix [pixels, positions] of linear interpolation weights; beyond the outermost positions, their value."""
    place = (torch.arange(pixels, device=like.device, dtype=like.dtype) - grid.offset) / grid.stride
    place = place.clamp(0, positions - 1)
    nodes = torch.arange(positions, device=like.device, dtype=like.dtype)
    return F.relu(1 - (place[:, None] - nodes).abs())
