"""The terms of Eq. 5, each a pure function of logits or masks, averaged over the batch."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Background = Literal["none", "eem", "sem"]
SizeUnit = Literal["pixels", "fraction"]


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


def size_barrier(foreground: Tensor, t: Tensor, unit: SizeUnit = "pixels") -> Tensor:
    """Last term of Eq. 5: foreground and background both want to be large.

    Args:
        foreground: soft masks M+ [B, 1, H, W]; the background is their complement.
        t: sharpness of the barrier.
        unit: sizes s+ and s- as sums of mask values, or as shares of the image.
    """
    size = foreground.flatten(1).sum(1)
    total = foreground[0].numel()
    rest = total - size
    if unit == "fraction":
        size, rest = size / total, rest / total
    return (log_barrier(size, t) + log_barrier(rest, t)).mean()


def _log2_softmax(logits: Tensor) -> Tensor:
    return F.log_softmax(logits, dim=1) / math.log(2)  # log(softmax) would underflow to log(0)
