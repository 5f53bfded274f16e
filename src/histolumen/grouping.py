"""The tissue's own two groups, found in features without any label; labels only say which group is the foreground.

Glands and stroma are natural groups of a pre-trained network's features. A normalised cut finds them: first as
directions in feature space, a generalised eigenproblem with one solution, then refined by a small network, of which the
one with the lowest cut is kept. Which group is the foreground is the paper's own question: in which of them is a
classifier sure?
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen import losses

DIRECTIONS = 3  # spectral starts; the best refined one was always among the first two
_HIDDEN, _IMITATION_STEPS, _CUT_STEPS, _RATE = 64, 40, 120, 5e-3
_STEEPNESS = 4.0  # of the start's sigmoid, in standard deviations of the projection
_BALANCE = 0.1  # weight of the barrier against an empty group
_RIDGE, _PENALTY, _FOLDS = 1e-2, 0.05, 5
_ANCHORS = 1024  # positions that `walk` compares with; all of them up to images of about 512 x 512 pixels
_TINY = 1e-6


@dataclass(frozen=True)
class Grouping:
    """Two groups of features. `cut` is its normalised cut; `uncertainty` is the cross-validated cross-entropy (nats)
    of the image label given the foreground, and given the background."""

    mean: Tensor
    std: Tensor
    head: nn.Module
    sign: int
    cut: float
    uncertainty: tuple[float, float]

    @torch.no_grad()
    def foreground(self, features: Tensor) -> Tensor:
        """Probability of the foreground [h, w] for features [C, h, w], each compared with all of its image."""
        positions = standardised(features.flatten(1).T, self.mean, self.std)
        share = torch.sigmoid(self.sign * self.head(positions)[:, 0])
        return walk(share, positions).reshape(features.shape[1:])


def standardised(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Every channel with mean 0 and deviation 1 over the data set."""
    return (features - mean) / std


def affinity(features: Tensor, others: Tensor | None = None) -> Tensor:
    """Squared positive cosine between positions [..., N, C] (and `others` of the same image), centred per image."""
    centre = features.mean(-2, keepdim=True)
    directions = F.normalize(features - centre, dim=-1)
    across = directions if others is None else F.normalize(others - centre, dim=-1)
    return (directions @ across.transpose(-1, -2)).clamp_min(0).square()


def walk(values: Tensor, features: Tensor) -> Tensor:
    """One step of a random walk: each position's value becomes the mean over the positions it resembles.

    Args:
        values: one per position [N].
        features: of the positions [N, C]; beyond 1024 of them a regular sample stands for all.
    """
    anchors = torch.linspace(0, len(values) - 1, min(len(values), _ANCHORS), device=values.device).round().long()
    weights = affinity(features, features[anchors])
    total = weights.sum(1)
    return torch.where(
        total > _TINY, weights @ values[anchors] / total.clamp_min(_TINY), values
    )  # unlike any: as it was


def group(samples: Tensor, labels: Tensor, seed: int) -> Grouping:
    """Find the two groups and their foreground.

    Args:
        samples: features of N positions of each image [B, N, C].
        labels: class indices of the images [B]; they choose the side, not the groups.
        seed: of the small network's first weights.
    """
    flat = samples.flatten(0, 1)
    mean, std = flat.mean(0), flat.std(0).clamp_min(_TINY)
    samples = standardised(samples, mean, std)
    edges = affinity(samples)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        refined = [_refine(samples, edges, start) for start in spectral_starts(samples, edges)]
    head, cut = min(refined, key=lambda found: found[1])
    with torch.no_grad():
        share = torch.sigmoid(head(samples)[..., 0])
    first, second = (label_uncertainty(_pooled(samples, side), labels) for side in (share, 1 - share))
    sign, sides = (1, (first, second)) if first <= second else (-1, (second, first))
    return Grouping(mean, std, head, sign, cut, sides)


def spectral_starts(samples: Tensor, edges: Tensor, count: int = DIRECTIONS) -> list[Tensor]:
    """Soft groups [B, N] along the directions w that a linear cut would take.

    With groups relaxed to projections s = x w, the normalised cut over all images is lowest for the largest
    eigenvalues of sum(x' A x) w = e sum(x' D x) w, where x are the features, centred by their degrees D.
    """
    degree = edges.sum(2)
    centre = (samples * degree[..., None]).sum(1, keepdim=True) / degree.sum(1).clamp_min(_TINY)[:, None, None]
    x = samples - centre
    kept = torch.einsum("bic,bid->cd", x, edges @ x).double().numpy()
    whole = torch.einsum("bic,bid->cd", x, degree[..., None] * x).double().numpy()
    channels = len(whole)
    ridge = (_RIDGE * np.trace(whole) / channels + _TINY) * np.eye(channels)
    first = max(channels - count, 0)
    _, directions = scipy.linalg.eigh(kept, whole + ridge, subset_by_index=(first, channels - 1))
    starts = []
    for direction in torch.from_numpy(directions.T[::-1].copy()).to(samples.dtype):
        projection = samples @ direction
        scaled = (projection - projection.mean()) / projection.std().clamp_min(_TINY)
        starts.append(torch.sigmoid(_STEEPNESS * scaled))
    return starts


def label_uncertainty(pooled: Tensor, labels: Tensor) -> float:
    """Cross-entropy (nats) of the labels [B] under linear classifiers of `pooled` [B, C], each fitted without the
    images that it judges; without two images of any class, that of a guess."""
    counts = torch.bincount(labels)
    judged = counts[labels] > 1  # an image that is alone in its class can be fitted or judged, not both
    pooled, labels = pooled[judged], labels[judged]
    if len(labels) == 0:
        return math.log(len(counts))
    folds = min(_FOLDS, int(counts[counts > 1].min()))
    fold = torch.zeros(len(labels), dtype=torch.long)
    for label in labels.unique():  # every fold has its share of every class
        members = (labels == label).nonzero()[:, 0]
        fold[members] = torch.arange(len(members)) % folds
    total = 0.0
    for index in range(folds):
        out = fold == index
        scores = _fit_linear(pooled[~out], labels[~out])(pooled[out])
        total += float(F.cross_entropy(scores, labels[out], reduction="sum"))
    return total / len(labels)


def _refine(samples: Tensor, edges: Tensor, start: Tensor) -> tuple[nn.Module, float]:
    """A small network that first imitates `start`, then lowers the cut itself; with the mean cut it reached."""
    head = nn.Sequential(nn.Linear(samples.shape[2], _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1)).to(samples)
    optimizer = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=1e-3)
    cut = torch.tensor(float("inf"))
    with torch.enable_grad():
        for step in range(_IMITATION_STEPS + _CUT_STEPS):
            logits = head(samples)[..., 0]
            if step < _IMITATION_STEPS:
                loss = F.binary_cross_entropy_with_logits(logits, start)
            else:
                share = torch.sigmoid(logits)
                size = share.mean(1).clamp(_TINY, 1 - _TINY)
                cut = losses.normalised_cut(share, edges).mean()
                loss = cut - _BALANCE * (size.log() + (1 - size).log()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return head.requires_grad_(False), cut.item()


def _pooled(samples: Tensor, share: Tensor) -> Tensor:
    """Mean features [B, C] of a soft group."""
    return (samples * share[..., None]).sum(1) / share.sum(1, keepdim=True).clamp_min(_TINY)


def _fit_linear(pooled: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
    """Logistic regression with an L2 penalty, to convergence: a function from features to class scores."""
    classes = int(labels.max()) + 1
    weight, bias = (pooled.new_zeros(shape).requires_grad_() for shape in ((pooled.shape[1], classes), (classes,)))
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = weight.square().sum() / (2 * _PENALTY * len(labels))
        value = F.cross_entropy(pooled @ weight + bias, labels) + penalty
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[arg-type] # the stub wants a float; LBFGS calls float() on it
    return lambda features: features @ weight.detach() + bias.detach()
