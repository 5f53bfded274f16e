"""Pooling of class maps into class scores."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WildcatHead(nn.Module):
    """WILDCAT (Durand et al. 2017): several maps per class, averaged; the score combines the highest and lowest
    positions.

    Args:
        channels: channels of the features.
        classes: number of classes.
        modalities: maps per class.
        kmax: share of positions (number of positions if >= 1) whose mean is the positive evidence.
        kmin: the same for the negative evidence; 0 disables it.
        alpha: weight of the negative evidence.
        dropout: probability that a selected activation is dropped in training.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        modalities: int = 5,
        kmax: float = 0.3,
        kmin: float = 0.0,
        alpha: float = 0.0,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.modality_maps = nn.Conv2d(channels, modalities * classes, kernel_size=1)
        self.modalities, self.kmax, self.kmin, self.alpha, self.dropout = modalities, kmax, kmin, alpha, dropout

    def maps(self, features: Tensor) -> Tensor:
        """Class maps [B, C, h, w]: the mean over the modalities of each class."""
        stacked = self.modality_maps(features)
        return stacked.unflatten(1, (-1, self.modalities)).mean(2)

    def scores(self, class_maps: Tensor) -> Tensor:
        """Class scores [B, C]: mean of the highest positions + alpha * mean of the lowest."""
        score = self._mean_of_share(class_maps, self.kmax)
        if self.kmin > 0:
            score = score - self.alpha * self._mean_of_share(-class_maps, self.kmin)
        return score

    def forward(self, features: Tensor) -> Tensor:
        """Class scores of `features`."""
        return self.scores(self.maps(features))

    def _mean_of_share(self, class_maps: Tensor, share: float) -> Tensor:
        """Mean of the largest share of the positions; `deploy` has another version, for graphs."""
        activations = class_maps.flatten(2)
        count = _positions(share, activations.shape[2])
        largest = torch.topk(activations, count, dim=2, sorted=False).values
        return F.dropout(largest, self.dropout, self.training).mean(2)


def log_mean_exp(values: Tensor) -> Tensor:
    """log(mean(exp(values))) over the last axis, whose length a traced graph need not know."""
    return values.logsumexp(-1) - torch.zeros_like(values).logsumexp(-1)


def _positions(share: float, total: int) -> int:
    count = math.floor(share * total + 0.5) if share < 1 else int(share)
    return min(max(count, 1), total)
