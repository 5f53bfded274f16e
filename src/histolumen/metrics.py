"""Scores of the paper and of the survey (Rony et al.): means over images, and PxAP over pooled pixels.

Each mask is reduced to pixel counts; scores, means and bootstrap intervals are computed from these counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

BINS = 1000  # PxAP is the area under 1,000 points of the precision-recall curve
_RESAMPLES = 1000


@dataclass(frozen=True)
class PixelCounts:
    """Pixel counts of one image's predicted mask against its true mask.

    `positives[b]` and `negatives[b]` count true foreground and background pixels whose value falls into bin b of
    [0, 1]; `confusion` holds true negatives, false positives, false negatives, true positives of the binary mask.
    """

    positives: np.ndarray
    negatives: np.ndarray
    confusion: tuple[int, int, int, int]

    @property
    def f1_plus(self) -> float:
        """Dice of the foreground; NaN if the image has none."""
        _, fp, fn, tp = self.confusion
        return 2 * tp / (2 * tp + fp + fn) if tp + fn else float("nan")

    @property
    def f1_minus(self) -> float:
        """Dice of the background; NaN if the image has none."""
        tn, fp, fn, _ = self.confusion
        return 2 * tn / (2 * tn + fp + fn) if tn + fp else float("nan")

    @property
    def miou(self) -> float:
        """Mean intersection over union of foreground and background; a region that the image lacks is excluded."""
        tn, fp, fn, tp = self.confusion
        ious = [hit / (hit + fp + fn) for hit, exists in ((tp, tp + fn), (tn, tn + fp)) if exists]
        return float(np.mean(ious))

    @property
    def predicted_share(self) -> float:
        """Share of the image that is predicted foreground."""
        _, fp, _, tp = self.confusion
        return (fp + tp) / sum(self.confusion)

    @property
    def true_share(self) -> float:
        """Share of the image that is foreground."""
        _, _, fn, tp = self.confusion
        return (fn + tp) / sum(self.confusion)


def count_pixels(soft_mask: np.ndarray, truth: np.ndarray, predicted: np.ndarray | None = None) -> PixelCounts:
    """Compare a soft mask [H, W] in [0, 1] with the true mask [H, W] bool.

    Args:
        soft_mask: foreground probabilities, for PxAP.
        truth: the true foreground.
        predicted: the binary mask; None: the soft mask thresholded at 0.5.
    """
    predicted = soft_mask >= 0.5 if predicted is None else predicted
    bins = np.minimum((soft_mask * BINS).astype(np.int64), BINS - 1)
    positives = np.bincount(bins[truth], minlength=BINS)
    negatives = np.bincount(bins[~truth], minlength=BINS)
    tp, fp = int((predicted & truth).sum()), int((predicted & ~truth).sum())
    fn, tn = int(truth.sum()) - tp, int((~truth).sum()) - fp
    return PixelCounts(positives, negatives, (tn, fp, fn, tp))


def pixel_average_precision(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """PxAP from pooled histograms [..., BINS]: precision times gain in recall, summed over falling thresholds."""
    true_positives = np.cumsum(positives[..., ::-1], axis=-1).astype(float)
    false_positives = np.cumsum(negatives[..., ::-1], axis=-1)
    precision = true_positives / np.maximum(true_positives + false_positives, 1)
    total = true_positives[..., -1:]
    gain = np.diff(true_positives, axis=-1, prepend=0.0) / np.maximum(total, 1)
    area = (precision * gain).sum(-1)
    return np.where(total[..., 0] > 0, area, np.nan)


@dataclass(frozen=True)
class Score:
    """A value with its bootstrap 95 % interval over images; all NaN if undefined."""

    value: float
    low: float
    high: float


def bootstrap(
    count: int, statistic: Callable[[np.ndarray], np.ndarray], seed: int = 0, resamples: int = _RESAMPLES
) -> Score:
    """Percentile bootstrap over images.

    Args:
        count: number of images.
        statistic: function from weights [R, count] (how often each image is drawn) to values [R].
        seed: seed of the resampling.
        resamples: number of resamples R.
    """
    value = float(statistic(np.ones((1, count)))[0])
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    values = statistic(draws.astype(float))
    values = values[np.isfinite(values)]
    if values.size == 0:
        return Score(value, float("nan"), float("nan"))
    low, high = np.percentile(values, [2.5, 97.5])
    return Score(value, float(low), float(high))


def weighted_mean(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Statistic for `bootstrap`: mean over the images for which `values` is defined."""
    defined = np.isfinite(values)
    filled = np.where(defined, values, 0.0)

    def statistic(weights: np.ndarray) -> np.ndarray:
        total = weights @ defined.astype(float)
        return np.where(total > 0, (weights @ filled) / np.maximum(total, 1e-12), np.nan)

    return statistic


def pooled_average_precision(counts: list[PixelCounts]) -> Callable[[np.ndarray], np.ndarray]:
    """Statistic for `bootstrap`: PxAP of the pooled pixels of the drawn images."""
    positives = np.stack([c.positives for c in counts]).astype(float)
    negatives = np.stack([c.negatives for c in counts]).astype(float)

    def statistic(weights: np.ndarray) -> np.ndarray:
        return pixel_average_precision(weights @ positives, weights @ negatives)

    return statistic


def class_recall(labels: np.ndarray, predicted: np.ndarray, label: int) -> Callable[[np.ndarray], np.ndarray]:
    """Statistic for `bootstrap`: share of the images of a class that are recognised.

    Of two classes, that of the one looked for is the sensitivity, that of the other the specificity.

    Args:
        labels: true class indices [N].
        predicted: predicted class indices [N].
        label: the class.
    """
    return weighted_mean(np.where(labels == label, (predicted == labels).astype(float), np.nan))


def balanced_accuracy(labels: np.ndarray, predicted: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Statistic for `bootstrap`: mean of the recalls of all classes; undefined if a resample lacks one."""
    recalls = [class_recall(labels, predicted, label) for label in np.unique(labels)]

    def statistic(weights: np.ndarray) -> np.ndarray:
        return np.mean([recall(weights) for recall in recalls], axis=0)

    return statistic


def roc_auc(labels: np.ndarray, probabilities: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Statistic for `bootstrap`: area under the ROC curve; of more than two classes, the mean of one against the rest.

    It is the share of pairs of images, one of the class and one of another, in which the first has the higher
    probability of the class; ties count half.

    Args:
        labels: true class indices [N].
        probabilities: of all classes [N, C].
    """
    classes = [label for label in range(probabilities.shape[1]) if 0 < (labels == label).sum() < len(labels)]
    classes = classes[-1:] if probabilities.shape[1] == 2 else classes
    pairs = []
    for label in classes:
        of_class = labels == label
        first, second = probabilities[of_class, label, None], probabilities[None, ~of_class, label]
        pairs.append((of_class, ((first > second) + 0.5 * (first == second)).astype(np.float32)))

    def statistic(weights: np.ndarray) -> np.ndarray:
        areas = []
        for of_class, ordered in pairs:
            inside, outside = weights[:, of_class], weights[:, ~of_class]
            total = inside.sum(1) * outside.sum(1)
            won = ((inside @ ordered) * outside).sum(1)
            areas.append(np.where(total > 0, won / np.maximum(total, 1e-12), np.nan))
        return np.mean(areas, axis=0) if areas else np.full(len(weights), np.nan)

    return statistic


def roc_points(positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates at all thresholds from the highest to the lowest; tied scores are one point."""
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.diff(score[order]) != 0, True)
    found = np.cumsum(positive[order])[last_of_tie] / max(positive.sum(), 1)
    false_alarms = np.cumsum(~positive[order])[last_of_tie] / max((~positive).sum(), 1)
    return np.append(0.0, false_alarms), np.append(0.0, found)


def calibration_bins(confidence: np.ndarray, count: int = 10) -> np.ndarray:
    """Index of the bin of equal width in [0, 1] of each probability."""
    return np.minimum((confidence * count).astype(int), count - 1)


def calibration_error(correct: np.ndarray, confidence: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Statistic for `bootstrap`: expected calibration error (ECE).

    The difference between accuracy and mean probability in each of ten bins, weighted by the number of images.

    Args:
        correct: whether each prediction is right [N].
        confidence: probability of the predicted class [N].
    """
    gap = correct.astype(float) - confidence
    member = calibration_bins(confidence)[:, None] == np.arange(10)

    def statistic(weights: np.ndarray) -> np.ndarray:
        return np.abs(weights @ (member * gap[:, None])).sum(1) / np.maximum(weights.sum(1), 1e-12)

    return statistic
