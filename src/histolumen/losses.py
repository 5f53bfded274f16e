"""Loss terms of Eq. 5 and those added to it (docs/method.md): pure functions of logits or masks, batch means."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Background = Literal["none", "eem", "sem"]
SizeUnit = Literal["pixels", "fraction"]
_TINY = 1e-6


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """H(p, p^) of Eq. 1-1: cross-entropy of the image label."""
    return F.cross_entropy(logits, labels)


def negative_entropy(logits: Tensor) -> Tensor:
    """EEM, Eq. 6: -H(p^-), base 2. Its minimum -log2(c) is reached by uniform probabilities."""
    log_p = _log2_softmax(logits)
    return (log_p.exp2() * log_p).sum(1).mean()


def uniform_cross_entropy(logits: Tensor) -> Tensor:
    """SEM, Eq. 7: H(q, p^-) with q uniform, base 2. Its minimum log2(c) is reached by uniform probabilities."""
    return -_log2_softmax(logits).mean(1).mean()


def background_uncertainty(logits: Tensor, kind: Literal["eem", "sem"]) -> Tensor:
    """R(p^-) of Eq. 5 in one of its two forms."""
    return negative_entropy(logits) if kind == "eem" else uniform_cross_entropy(logits)


def log_barrier(value: Tensor, t: Tensor) -> Tensor:
    """Extended log-barrier: -log(s)/t for s >= 1/t^2; below, its tangent line, which is also defined for s <= 0."""
    knee = 1 / t**2
    curve = -torch.log(value.clamp_min(knee)) / t
    line = -t * value + 2 * torch.log(t) / t + 1 / t
    return torch.where(value >= knee, curve, line)


def size_barrier(foreground: Tensor, t: Tensor, unit: SizeUnit = "pixels", negative: Tensor | None = None) -> Tensor:
    """Last term of Eq. 5: keeps both foreground and background large.

    Args:
        foreground: soft masks M+ [B, 1, H, W]; the background is their complement.
        t: sharpness of the barrier.
        unit: measure sizes s+ and s- as sums of mask values, or as shares of the image.
        negative: which images [B] have no foreground; only the size of their background counts.
    """
    foreground_size = foreground.float().flatten(1).sum(1)  # a sum in bfloat16 has three digits
    total = foreground[0].numel()
    background_size = total - foreground_size
    if unit == "fraction":
        foreground_size, background_size = foreground_size / total, background_size / total
    foreground_barrier = log_barrier(foreground_size, t)
    if negative is not None:
        foreground_barrier = foreground_barrier.masked_fill(negative, 0)
    return (foreground_barrier + log_barrier(background_size, t)).mean()


def normalised_cut(groups: Tensor, affinity: Tensor) -> Tensor:
    """Normalised cut: the affinity between two soft groups, relative to the total affinity of each.

    Args:
        groups: membership [B, N] in the first group, in [0, 1]; the second is its complement.
        affinity: similarity of positions [B, N, N], non-negative.

    Returns:
        One value per image [B], from 0 (no affinity is cut) to about 1 (random groups).
    """
    degree = affinity.sum(2)
    cut = torch.einsum("bi,bij,bj->b", groups, affinity, 1 - groups)
    first, second = (degree * groups).sum(1), (degree * (1 - groups)).sum(1)
    return cut / first.clamp_min(_TINY) + cut / second.clamp_min(_TINY)


def proposal_cross_entropy(logits: Tensor, proposals: Tensor) -> Tensor:
    """Cross-entropy of mask logits with binarised proposals, weighted by the confidence of each pixel's proposal.

    Args:
        logits: foreground logits [B, 1, H, W].
        proposals: proposed foreground probability; 0.5 has weight 0.
    """
    confidence = (2 * proposals - 1).abs()
    per_pixel = F.binary_cross_entropy_with_logits(logits, (proposals > 0.5).to(logits.dtype), reduction="none")
    return (confidence * per_pixel).sum() / confidence.sum().clamp_min(_TINY)


def negative_evidence(logits: Tensor, negative: Tensor) -> Tensor:
    """Mean of -log(1 - M+) over the pixels of images without foreground; 0 if the batch has none.

    Args:
        logits: foreground logits [B, 1, H, W] with M+ = sigmoid(logits); log(1 - M+) itself would underflow to log(0).
        negative: which images [B] have no foreground.
    """
    per_image = F.softplus(logits).flatten(1).mean(1)
    return per_image.masked_fill(~negative, 0).sum() / negative.sum().clamp_min(1)


def edge_consistency(mask: Tensor, images: Tensor, contrast: float = 0.1) -> Tensor:
    """Differences between neighbouring mask values, discounted where the colour changes too.

    Args:
        mask: soft masks [B, 1, H, W].
        images: of the same size, in [0, 1].
        contrast: colour change at which the cost of a boundary falls by about 40 %.
    """
    costs = []
    for axis in (2, 3):
        change, colour = mask.diff(dim=axis).abs(), images.diff(dim=axis).square().mean(1, keepdim=True)
        costs.append((change * torch.exp(-colour / (2 * contrast**2))).mean())
    return torch.stack(costs).sum()


def _log2_softmax(logits: Tensor) -> Tensor:
    return F.log_softmax(logits, dim=1) / math.log(2)  # log(softmax) would underflow to log(0)
