"""Two tissue clusters, found in features without labels; the labels only decide which cluster is the foreground.

Glands and stroma form clusters in the features of a pre-trained network. A normalised cut finds them: first as
directions in feature space (a generalised eigenproblem), each then refined by a small network. The result with the
lowest cut is kept. The foreground is the cluster from which a classifier predicts the image label with more certainty,
the criterion of the paper.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen import losses

DIRECTIONS = 3  # spectral initialisations; the best result always came from one of the first two
_MAIN_DIRECTIONS = 64  # of the features; on GlaS, results of different seeds are then alike (docs/results.md)
_HIDDEN, _IMITATION_STEPS, _CUT_STEPS, _RATE = 64, 40, 120, 5e-3
_STEEPNESS = 4.0  # of the initial sigmoid, per standard deviation of the projection
_BALANCE = 0.1  # weight of the barrier against an empty cluster
_RIDGE, _PENALTY, _FOLDS = 1e-2, 0.05, 5
_ANCHORS = 1024  # positions that `walk` averages over; all of them for images up to about 512 x 512 pixels
_TINY = 1e-6


@dataclass(frozen=True)
class TissueClusters:
    """Two clusters of features, told apart by `head` along the main `directions` of the features.

    `cut` is their normalised cut; `uncertainty` is the cross-validated cross-entropy (nats) of the image label given
    the foreground, and given the background.
    """

    mean: Tensor
    std: Tensor
    directions: Tensor
    head: nn.Module
    sign: int
    cut: float
    uncertainty: tuple[float, float]

    @torch.no_grad()
    def membership(self, features: Tensor) -> Tensor:
        """Foreground probability [...] of single positions [..., C]."""
        return self._membership(standardised(features, self.mean, self.std))

    @torch.no_grad()
    def foreground(self, features: Tensor, tissue: Tensor) -> Tensor:
        """Foreground probability [h, w], averaged over similar positions on tissue.

        Args:
            features: of an image [C, h, w].
            tissue: which positions [h, w] are on tissue.
        """
        positions = standardised(features.flatten(1).T, self.mean, self.std)
        return walk(self._membership(positions), positions, tissue.flatten()).reshape(features.shape[1:])

    def _membership(self, positions: Tensor) -> Tensor:
        return torch.sigmoid(self.sign * self.head(positions @ self.directions)[..., 0])


def standardised(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Features with mean 0 and standard deviation 1 per channel over the data set."""
    return (features - mean) / std


def affinity(features: Tensor) -> Tensor:
    """Squared positive cosine similarity of positions [..., N, C], centred per image."""
    return _similarity(features, features, features.mean(-2, keepdim=True))


def walk(values: Tensor, features: Tensor, tissue: Tensor) -> Tensor:
    """One step of a random walk: each value becomes the mean over all positions, weighted by their affinity.

    Args:
        values: one value per position [N].
        features: features of the positions [N, C].
        tissue: which positions [N] the mean is over; above 1024, over a regular sample of them.
    """
    on_tissue = tissue.nonzero()[:, 0] if tissue.any() else torch.arange(len(values), device=values.device)
    last = len(on_tissue) - 1
    anchors = on_tissue[torch.linspace(0, last, min(last + 1, _ANCHORS), device=values.device).round().long()]
    weights = _similarity(features, features[anchors], features[on_tissue].mean(0))
    total = weights.sum(1)
    mean = weights @ values[anchors] / total.clamp_min(_TINY)
    return torch.where(total > _TINY, mean, values)  # a position similar to none keeps its value


def tissue_clusters(samples: Tensor, labels: Tensor, seed: int) -> TissueClusters:
    """Find two clusters and decide which one is the foreground.

    Args:
        samples: features of N positions of each image [B, N, C].
        labels: class indices of the images [B]; used only to choose the foreground.
        seed: seed of the small network's initial weights.
    """
    flat = samples.flatten(0, 1)
    mean, std = flat.mean(0), flat.std(0).clamp_min(_TINY)
    samples = standardised(samples, mean, std)
    edges = affinity(samples)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        main = _main_directions(samples)
        refined = [_refine(samples @ main, edges, start) for start in spectral_starts(samples, edges)]
    head, cut = min(refined, key=lambda head_and_cut: head_and_cut[1])
    with torch.no_grad():
        membership = torch.sigmoid(head(samples @ main)[..., 0])
    first, second = (label_uncertainty(_pooled(samples, cluster), labels) for cluster in (membership, 1 - membership))
    sign, uncertainty = (1, (first, second)) if first <= second else (-1, (second, first))
    return TissueClusters(mean, std, main, head, sign, cut, uncertainty)


def spectral_starts(samples: Tensor, edges: Tensor, count: int = DIRECTIONS) -> list[Tensor]:
    """Initial soft clusters [B, N]: projections on the directions w of the relaxed normalised cut.

    With memberships relaxed to projections s = x w, the normalised cut over all images is lowest for the largest
    eigenvalues of sum(x' A x) w = e sum(x' D x) w, where x are the features, centred with their degrees D as weights.
    """
    import scipy.linalg  # noqa: PLC0415 - slow to import, not needed for prediction

    degree = edges.sum(2)
    centre = (samples * degree[..., None]).sum(1, keepdim=True) / degree.sum(1).clamp_min(_TINY)[:, None, None]
    x = samples - centre
    within = torch.einsum("bic,bid->cd", x, edges @ x).double().numpy()
    total = torch.einsum("bic,bid->cd", x, degree[..., None] * x).double().numpy()
    channels = len(total)
    ridge = (_RIDGE * np.trace(total) / channels + _TINY) * np.eye(channels)
    first = max(channels - count, 0)
    _, directions = scipy.linalg.eigh(within, total + ridge, subset_by_index=(first, channels - 1))
    starts = []
    for direction in torch.from_numpy(directions.T[::-1].copy()).to(samples.dtype):
        projection = samples @ direction
        scaled = (projection - projection.mean()) / projection.std().clamp_min(_TINY)
        starts.append(torch.sigmoid(_STEEPNESS * scaled))
    return starts


def _main_directions(samples: Tensor) -> Tensor:
    """The directions [C, K] in which the features [B, N, C] vary most, for projections of mean variance 1.

    Minor directions mostly hold noise, to which the small network would adapt.
    """
    flat = samples.flatten(0, 1)
    variances, directions = torch.linalg.eigh((flat.T @ flat / len(flat)).double())  # in ascending order
    kept = variances[-_MAIN_DIRECTIONS:].clamp_min(_TINY)
    return (directions[:, -_MAIN_DIRECTIONS:] / kept.mean().sqrt()).to(samples)


def label_uncertainty(pooled: Tensor, labels: Tensor) -> float:
    """Cross-validated cross-entropy (nats) of the labels [B] under a linear classifier of `pooled` [B, C].

    If fewer than two classes have two images or more, it is that of a uniform guess.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - slow to import, rarely needed
    from sklearn.metrics import log_loss  # noqa: PLC0415
    from sklearn.model_selection import StratifiedKFold, cross_val_predict  # noqa: PLC0415

    counts = torch.bincount(labels)
    usable = counts[labels] > 1  # the only image of a class cannot be in both the training and the test fold
    features, targets = pooled[usable].double().numpy(), labels[usable].numpy()
    if len(set(targets)) < 2:
        return math.log(max(len(counts), 2))
    folds = StratifiedKFold(min(_FOLDS, int(counts[counts > 1].min())))
    classifier = LogisticRegression(C=_PENALTY, max_iter=1000)
    probabilities = cross_val_predict(classifier, features, targets, cv=folds, method="predict_proba")
    return float(log_loss(targets, probabilities))


def _similarity(features: Tensor, others: Tensor, centre: Tensor) -> Tensor:
    directions, across = (F.normalize(positions - centre, dim=-1) for positions in (features, others))
    return (directions @ across.transpose(-1, -2)).clamp_min(0).square()


def _refine(samples: Tensor, edges: Tensor, start: Tensor) -> tuple[nn.Module, float]:
    """Train a small network to imitate `start`, then to minimise the cut; returns it and its mean cut."""
    head = nn.Sequential(nn.Linear(samples.shape[2], _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1)).to(samples)
    optimizer = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=1e-3)
    cut = torch.tensor(float("inf"))
    with torch.enable_grad():
        for step in range(_IMITATION_STEPS + _CUT_STEPS):
            logits = head(samples)[..., 0]
            if step < _IMITATION_STEPS:
                loss = F.binary_cross_entropy_with_logits(logits, start)
            else:
                membership = torch.sigmoid(logits)
                size = membership.mean(1).clamp(_TINY, 1 - _TINY)
                cut = losses.normalised_cut(membership, edges).mean()
                loss = cut - _BALANCE * (size.log() + (1 - size).log()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return head.requires_grad_(False), cut.item()


def _pooled(samples: Tensor, membership: Tensor) -> Tensor:
    """Mean features [B, C] of a soft cluster."""
    return (samples * membership[..., None]).sum(1) / membership.sum(1, keepdim=True).clamp_min(_TINY)
