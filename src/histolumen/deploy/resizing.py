"""Resizing with sizes that are computed inside a traced graph.

A trace stores Python numbers as constants, so that a size computed with them would be right only for the traced image.
Here sizes are tensors, and a resize is a product with an interpolation matrix that the graph computes: every runtime
gives the same values, whether it knows antialiasing or not.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.data.transforms import MIN_SIDE, ImageSettings, working_size

_MAX_WEIGHT, _MAX_DIGITS = 2**15 - 0.5, 22


def sides(images: Tensor) -> tuple[Tensor, Tensor]:
    """Height and width of images [..., H, W] as tensors."""
    return torch.as_tensor(images.shape[-2]), torch.as_tensor(images.shape[-1])


def graph_working_size(height: Tensor, width: Tensor, settings: ImageSettings, multiple: int) -> tuple[Tensor, Tensor]:
    """`data.transforms.working_size` for sizes that are only known when the graph runs."""
    if settings.short_side is None:
        return _to_multiple(height, 1, 1, multiple), _to_multiple(width, 1, 1, multiple)
    if settings.resize == "square":
        side = torch.tensor(working_size(settings.short_side, settings.short_side, settings, multiple=multiple)[0])
        return side, side
    shortest = torch.minimum(height, width)
    return (
        _to_multiple(height, settings.short_side, shortest, multiple),
        _to_multiple(width, settings.short_side, shortest, multiple),
    )


def antialiased(images: Tensor, size: tuple[Tensor, Tensor]) -> Tensor:
    """Images [..., h, w] resized bilinearly, with antialiasing where they shrink; the same as torch's own."""
    down, across = (_antialias_matrix(new, old) for new, old in zip(size, sides(images), strict=True))
    return down @ images @ across.T


def antialiased_levels(images: Tensor, size: tuple[Tensor, Tensor]) -> Tensor:
    """Levels 0 to 255 [..., h, w] resized as torch resizes bytes: across, rounded, then down, rounded again, with
    weights of 16 bits."""
    down, across = (_in_16_bits(_antialias_matrix(new, old)) for new, old in zip(size, sides(images), strict=True))
    rows = (images @ across.T + 0.5).floor()
    return (down @ rows + 0.5).floor()


def nearest(images: Tensor, size: tuple[Tensor, Tensor]) -> Tensor:
    """Images [..., h, w] resized by taking the nearest pixel (torch's `nearest-exact`)."""
    down, across = (_nearest_index(new, old) for new, old in zip(size, sides(images), strict=True))
    return images.index_select(-2, down).index_select(-1, across)


def padded_to(images: Tensor, size: tuple[Tensor, Tensor]) -> Tensor:
    """Images [B, C, h, w] with their lower and right borders repeated up to `size`, or cropped to it."""
    down, across = (_border_index(new, old) for new, old in zip(size, sides(images), strict=True))
    return images.index_select(-2, down).index_select(-1, across)


def _to_multiple(side: Tensor, numerator: int, denominator: Tensor | int, multiple: int) -> Tensor:
    """The multiple nearest to `side * numerator / denominator`, in whole numbers: no runtime rounds it differently."""
    nearest_multiple = (2 * side * numerator + denominator * multiple) // (2 * denominator * multiple)
    return multiple * nearest_multiple.clamp(min=-(-MIN_SIDE // multiple))


def _antialias_matrix(new: Tensor, old: Tensor) -> Tensor:
    """Matrix [new, old] of a triangle filter: as wide as two pixels of the larger of both grids."""
    pixel, source = _range(new), _range(old)
    numerator = (2 * pixel + 1) * old  # centre of a new pixel, times 2 * new; whole numbers stay exact
    whole = numerator // (2 * new)
    fraction = (numerator - whole * (2 * new)).float() / (2 * new).float()
    distance = (source[None] - whole[:, None]).float() + (0.5 - fraction[:, None])
    support = (old.float() / new.float()).clamp(min=1)
    weights = F.relu(1 - distance.abs() / support)
    return weights / weights.sum(1, keepdim=True)


def _in_16_bits(weights: Tensor) -> Tensor:
    """Weights as torch's fixed-point numbers, with as many binary digits as keep the largest one below 2^15."""
    digits = ((_MAX_WEIGHT / weights.max()).log2().ceil() - 1).clamp(max=_MAX_DIGITS)
    one = torch.tensor(2.0).pow(digits).round()
    return (weights * one + 0.5).floor() / one


def _nearest_index(new: Tensor, old: Tensor) -> Tensor:
    place = (_range(new).float() + 0.5) * (old.float() / new.float())
    return torch.minimum(place.floor().long(), old - 1)


def _border_index(new: Tensor, old: Tensor) -> Tensor:
    return torch.minimum(_range(new), old - 1)


def _range(count: Tensor) -> Tensor:
    return torch.arange(count)  # pyright: ignore[reportCallIssue, reportArgumentType] - a number that the graph computes
