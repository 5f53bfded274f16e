"""Calibration of class probabilities by one temperature, fitted to held-out labels (Guo et al. 2017)."""

import numpy as np

LOWEST, HIGHEST = 0.5, 10.0
"""Bounds of the temperature. The held-out labels also chose the epoch, so they must not add much certainty."""
_TINY = 1e-30  # probabilities below have underflowed


def with_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities [..., C] with their logarithms divided by `temperature`: their order never changes.

    Above 1 they become less certain, below 1 more certain. 1 / temperature reverses it.
    """
    logits = np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), _TINY)) / temperature
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the lowest cross-entropy of held-out labels; 1 without any.

    Few labels must not make a model certain: if all of n are right, the cross-entropy has no optimum, and the best
    temperature would be 0. As in Platt's scaling, each label therefore counts as right with probability
    (n + 1) / (n + 2) only, which is Laplace's estimate of how often a model is right that was right n times of n.

    Args:
        probabilities: predicted for n images that were not trained on, [n, C].
        labels: their class indices [n].
    """
    from scipy import optimize  # noqa: PLC0415 - slow to import, needed once per model

    count, classes = probabilities.shape
    if count == 0 or classes < 2:
        return 1.0
    doubt = 1 / (count + 2)
    targets = np.full((count, classes), doubt / (classes - 1))
    targets[np.arange(count), labels] = 1 - doubt

    def cross_entropy(log_temperature: float) -> float:
        calibrated = with_temperature(probabilities, float(np.exp(log_temperature)))
        return float(-(targets * np.log(np.maximum(calibrated, _TINY))).sum(1).mean())

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    found = optimize.minimize_scalar(cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return round(float(np.exp(found.x)), 4)
