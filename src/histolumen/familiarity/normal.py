"""Distance from a cloud of training images: a normal distribution that stays sound with few images."""

from dataclasses import dataclass

import numpy as np

_MOST_DIRECTIONS = 32  # with their own variance; the others share one
_FOLDS = 10
_LEAST_VARIANCE = 1e-4  # of standardised values; less is rounding
_TINY = 1e-9


@dataclass(frozen=True)
class Normal:
    """A normal distribution of standardised vectors whose minor directions share one variance (probabilistic PCA)."""

    mean: np.ndarray
    std: np.ndarray
    directions: np.ndarray
    """Principal directions [k, d] of the standardised vectors."""
    variances: np.ndarray
    """Variance along each of them [k], then that of any other direction."""

    @classmethod
    def fit(cls, vectors: np.ndarray) -> "Normal":
        """Fit vectors [n, d]. At most half as many directions as vectors get a variance of their own."""
        count, size = vectors.shape
        mean, std = vectors.mean(0), vectors.std(0) + _TINY
        values, vectors_of = np.linalg.eigh(np.atleast_2d(np.cov((vectors - mean) / std, rowvar=False)))
        values, directions = values[::-1], vectors_of.T[::-1]
        kept = min(_MOST_DIRECTIONS, size, max(count // 2, 1))
        rest = values[kept:].mean() if kept < size else 1.0
        directions = np.ascontiguousarray(directions[:kept])  # as read from a file: other layouts are rounded otherwise
        return cls(mean, std, directions, np.append(values[:kept], rest).clip(_LEAST_VARIANCE))

    def distance(self, vectors: np.ndarray) -> np.ndarray:
        """Mahalanobis distance of vectors [n, d] per dimension: about 1 for those that were fitted."""
        standard = (vectors - self.mean) / self.std
        along = standard @ self.directions.T
        beside = (standard**2).sum(1) - (along**2).sum(1)
        square = (along**2 / self.variances[:-1]).sum(1) + beside.clip(0) / self.variances[-1]
        return np.sqrt(square / len(self.mean))


def held_out_distances(vectors: np.ndarray, groups: list[str]) -> np.ndarray:
    """Distance of each vector [n, d] from the others, ten folds of them at a time; a group is never in two folds."""
    names = {name: number for number, name in enumerate(sorted(set(groups)))}
    folds = np.array([names[group] % _FOLDS for group in groups])
    distances = np.zeros(len(vectors))
    for fold in np.unique(folds):
        inside = folds == fold
        others = vectors[~inside] if (~inside).sum() > 1 else vectors  # one group only: nothing can be held out
        distances[inside] = Normal.fit(others).distance(vectors[inside])
    return distances


def conformal_limit(held_out: np.ndarray, level: float) -> float:
    """The limit that a further value of the same kind keeps with at least this probability; at most the largest."""
    rank = int(np.ceil((len(held_out) + 1) * level))
    return float(np.sort(held_out)[min(rank, len(held_out)) - 1])
