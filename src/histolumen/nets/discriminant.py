"""Refine the mask of each image by a linear discriminant fitted to its own features.

A network learns one boundary for all images: in features that see far around a position, it lies a little outside of
some glands and inside of others. Within one image, stain and cells of foreground and background differ clearly. So the
pixels that the mask is sure of train a linear discriminant on the fine features of the same image, which then decides
on the others; no label and no true mask is used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ROUNDS = 10  # of fitting; the mask hardly changes afterwards (docs/results.md)
_WIDE = 5  # positions of the coarsest level: side of the neighbourhood that features are averaged over
_RIDGE = 0.1  # added to the variances, which are 1
_FEW = 50.0  # positions of either side from which the discriminant has half of its weight
_SUREST = 4.6  # largest logit of the mask, a probability of 0.99: more would leave the discriminant no say
_CHANNELS = 64  # of a level; wider ones are projected, since the fit takes the cube of their number
_INVERSE_STEPS = 14  # double the correct digits each; enough for a few hundred features with this ridge
_TINY = 1e-6


class Refinement(nn.Module):
    """A module without weights: part of a network's name space, so that it can be told apart in an exported graph.

    Args:
        channels: of each level, fine to coarse.
    """

    def __init__(self, channels: Sequence[int]):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        for k, count in enumerate(channels):
            directions = torch.eye(count)
            if count > _CHANNELS:  # random directions keep distances
                directions = torch.linalg.qr(torch.randn(count, _CHANNELS, generator=random)).Q
            self.register_buffer(f"directions_{k}", directions.T[:, :, None, None].contiguous(), persistent=False)

    @torch.no_grad()
    def forward(self, logits: Tensor, levels: Sequence[Tensor], tissue: Tensor) -> Tensor:
        """Mask logits [B, 1, h, w]: the mean probability of the mask and of its refinement.

        The refinement adds the log-likelihood ratio of the discriminant to the logits. Its features are those of all
        levels and their means over a neighbourhood. It is fitted at the positions of the coarsest level, starting from
        the mask and then from its own result.

        Args:
            logits: of the mask [B, 1, h, w].
            levels: feature maps [B, C, h, w] of the same images, fine to coarse, each of twice the stride of the one
                before; the finest has the size of `logits`.
            tissue: share of tissue [B, 1, h, w], at the size of `logits`. Glass, which has been painted over, is not
                fitted to: it would be most of the background, and unlike all of the rest.
        """
        with torch.autocast(logits.device.type, enabled=False):
            narrow = [self._narrowed(level.float(), k) for k, level in enumerate(levels)]
            return _refined(logits.float(), narrow, tissue.float()).to(logits)

    def _narrowed(self, level: Tensor, k: int) -> Tensor:
        directions = self.get_buffer(f"directions_{k}")
        return F.conv2d(level, directions) if len(directions) < level.shape[1] else level


def _refined(logits: Tensor, levels: list[Tensor], tissue: Tensor) -> Tensor:
    prior = logits.clamp(-_SUREST, _SUREST)
    halvings, coarsest = len(levels) - 1, levels[-1]
    together = torch.cat([_halved(level, halvings - k, coarsest) for k, level in enumerate(levels)], dim=1)
    wide = F.avg_pool2d(together, _WIDE, stride=1, padding=_WIDE // 2, count_include_pad=False)
    small_prior, small_tissue = (_halved(maps, halvings, coarsest) for maps in (prior, tissue))
    weights, offset = _fit(torch.cat([together, wide], dim=1), small_prior, small_tissue)
    maps = [*levels, wide]
    evidence = offset
    for part, level in zip(weights.split([each.shape[1] for each in maps], 1), maps, strict=True):
        evidence = evidence + _at_size_of(logits, (part[:, :, None, None] * level).sum(1, keepdim=True))
    mean = (torch.sigmoid(logits) + torch.sigmoid(prior + evidence)) / 2
    mean = mean.clamp(_TINY, 1 - _TINY)
    return torch.log(mean / (1 - mean))


def _fit(features: Tensor, prior: Tensor, tissue: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [B, C] and offset [B, 1, 1, 1] of the discriminant: `weights @ features + offset` is its log-likelihood
    ratio, for features [B, C, h, w], logits of the mask and share of tissue [B, 1, h, w]."""
    x, start, share = features.flatten(2).transpose(1, 2), prior.flatten(1), tissue.flatten(1)
    of_each = (share / share.sum(1, keepdim=True).clamp_min(_TINY))[:, None]  # weights of the positions, [B, 1, N]
    mean = of_each @ x
    std = (of_each @ (x - mean).square()).sqrt().clamp_min(_TINY)
    x = (x - mean) / std
    covariance = (x * of_each.transpose(1, 2)).transpose(1, 2) @ x
    inverse = _inverse(covariance + _RIDGE * torch.eye(x.shape[2], device=x.device))
    logits = start
    direction, gain, middle = torch.zeros_like(mean), torch.zeros_like(start[:, :1]), torch.zeros_like(start[:, :1])
    for _ in range(_ROUNDS):
        sure = (2 * torch.sigmoid(logits) - 1) * share
        certainty = torch.stack([sure.clamp_min(0), (-sure).clamp_min(0)], dim=1)  # of both sides, [B, 2, N]
        total = certainty.sum(2, keepdim=True)
        means = certainty @ x / total.clamp_min(_TINY)
        direction = (means[:, :1] - means[:, 1:]) @ inverse
        projected, centres = direction @ x.transpose(1, 2), means @ direction.transpose(1, 2)
        variance = (certainty * (projected - centres).square()).sum((1, 2)) / total.sum((1, 2)).clamp_min(_TINY)
        smaller = total.amin((1, 2))
        trust = smaller / (smaller + _FEW)
        gain = ((centres[:, 0, 0] - centres[:, 1, 0]) / variance.clamp_min(_TINY) * trust)[:, None]
        middle = centres.mean(1)
        logits = start + gain * (projected[:, 0] - middle)
    weights = (gain[:, None] * direction / std)[:, 0]
    offset = -(weights * mean[:, 0]).sum(1, keepdim=True) - gain * middle
    return weights, offset[:, :, None, None]


def _inverse(matrices: Tensor) -> Tensor:
    """Inverses of positive definite matrices [B, C, C]: by Cholesky's method or, in exported graphs, which have no such
    operator, by Newton's iteration, which takes matrix products alone and about ten times as long."""
    if not torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage] - documented
        return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrices).L)
    return _inverse_by_products(matrices)


def _inverse_by_products(matrices: Tensor) -> Tensor:
    identity = torch.eye(matrices.shape[-1], device=matrices.device).expand_as(matrices)
    inverse = identity / matrices.abs().sum(-1).amax(-1)[:, None, None]
    for _ in range(_INVERSE_STEPS):
        inverse = inverse @ (2 * identity - matrices @ inverse)
    return inverse


def _halved(maps: Tensor, times: int, coarsest: Tensor) -> Tensor:
    """Maps at the positions of the coarsest level."""
    for _ in range(times):
        maps = F.avg_pool2d(maps, kernel_size=2, ceil_mode=True, count_include_pad=False)
    return _at_size_of(coarsest, maps) if times else maps  # networks that do not pad lose positions at the border


def _at_size_of(other: Tensor, maps: Tensor) -> Tensor:
    return F.interpolate(maps, size=other.shape[2:], mode="bilinear", align_corners=False)
