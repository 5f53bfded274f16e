"""The terms of Eq. 5 and those added to it (docs/method.md): pure functions of logits or masks, batch means."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Background = Literal["none", "eem", "sem"]
SizeUnit = Literal["pixels", "fraction"]
_TINY = 1e-6


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """H(p, p^) of Eq. 1-1: how surely the region shows the image's class."""
    return F.cross_entropy(logits, labels)


def negative_entropy(logits: Tensor) -> Tensor:
    """EEM, Eq. 6: -H(p^-), base 2; lowest, -log2(c), where the background tells nothing about the class."""
    log_p = _log2_softmax(logits)
    return (log_p.exp2() * log_p).sum(1).mean()


def uniform_cross_entropy(logits: Tensor) -> Tensor:
    """SEM, Eq. 7: H(q, p^-) with q uniform, base 2; lowest, log2(c), where the background tells nothing."""
    return -_log2_softmax(logits).mean(1).mean()


def background_uncertainty(logits: Tensor, kind: Literal["eem", "sem"]) -> Tensor:
    """R(p^-) of Eq. 5 in one of its two forms."""
    return negative_entropy(logits) if kind == "eem" else uniform_cross_entropy(logits)


def log_barrier(value: Tensor, t: Tensor) -> Tensor:
    """Extended log-barrier: -log(s)/t for s >= 1/t^2, below that its tangent line, which is defined for s <= 0 too."""
    knee = 1 / t**2
    curve = -torch.log(value.clamp_min(knee)) / t
    line = -t * value + 2 * torch.log(t) / t + 1 / t
    return torch.where(value >= knee, curve, line)


def size_barrier(foreground: Tensor, t: Tensor, unit: SizeUnit = "pixels", negative: Tensor | None = None) -> Tensor:
    """Last term of Eq. 5: foreground and background both want to be large.

    Args:
        foreground: soft masks M+ [B, 1, H, W]; the background is their complement.
        t: sharpness of the barrier.
        unit: sizes s+ and s- as sums of mask values, or as shares of the image.
        negative: which images [B] are meant to have no foreground; only their background wants to be large.
    """
    size = foreground.flatten(1).sum(1)
    total = foreground[0].numel()
    rest = total - size
    if unit == "fraction":
        size, rest = size / total, rest / total
    inside = log_barrier(size, t)
    if negative is not None:
        inside = inside.masked_fill(negative, 0)
    return (inside + log_barrier(rest, t)).mean()


def normalised_cut(groups: Tensor, affinity: Tensor) -> Tensor:
    """How much affinity is cut between two soft groups, relative to what each of them has in all.

    Args:
        groups: membership [B, N] in the first group, in [0, 1]; the second is its complement.
        affinity: how alike positions are [B, N, N], not negative.

    Returns:
        One value per image [B], 0 (nothing cut) to about 1 (groups at random).
    """
    degree = affinity.sum(2)
    cut = torch.einsum("bi,bij,bj->b", groups, affinity, 1 - groups)
    first, second = (degree * groups).sum(1), (degree * (1 - groups)).sum(1)
    return cut / first.clamp_min(_TINY) + cut / second.clamp_min(_TINY)


def proposal_cross_entropy(logits: Tensor, proposals: Tensor) -> Tensor:
    """Cross-entropy of mask logits and the side that each pixel's proposal takes, weighted by how surely it does.

    Args:
        logits: of the foreground [B, 1, H, W].
        proposals: foreground proposed, in [0, 1]; 0.5 says nothing.
    """
    sureness = (2 * proposals - 1).abs()
    each = F.binary_cross_entropy_with_logits(logits, (proposals > 0.5).to(logits.dtype), reduction="none")
    return (sureness * each).sum() / sureness.sum().clamp_min(_TINY)


def negative_evidence(logits: Tensor, negative: Tensor) -> Tensor:
    """-log(1 - M+), averaged over the pixels of the images that are meant to have no foreground; 0 without any.

    Args:
        logits: of the foreground [B, 1, H, W], M+ = sigmoid(logits): log(1 - M+) itself would underflow to log(0).
        negative: which images [B] these are.
    """
    each = F.softplus(logits).flatten(1).mean(1)
    return each.masked_fill(~negative, 0).sum() / negative.sum().clamp_min(1)


def edge_consistency(mask: Tensor, images: Tensor, contrast: float = 0.1) -> Tensor:
    """Differences between neighbouring mask values, forgiven where the colour changes as well.

    Args:
        mask: soft masks [B, 1, H, W].
        images: of the same size, in [0, 1].
        contrast: change of colour at which a boundary costs about 40 % less.
    """
    costs = []
    for axis in (2, 3):
        change, colour = mask.diff(dim=axis).abs(), images.diff(dim=axis).square().mean(1, keepdim=True)
        costs.append((change * torch.exp(-colour / (2 * contrast**2))).mean())
    return torch.stack(costs).sum()


def _log2_softmax(logits: Tensor) -> Tensor:
    return F.log_softmax(logits, dim=1) / math.log(2)  # log(softmax) would underflow to log(0)
