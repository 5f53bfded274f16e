"""Split images into training, validation and test: stratified by class, all images of a patient in one split."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from histolumen.data.manifest import SPLITS, Split
from histolumen.errors import DataError


def stratified_split(
    labels: Sequence[str], patients: Sequence[str], valid: float, test: float, seed: int
) -> list[Split]:
    """Assign a split to each image.

    All images of a patient get the same split; an image without a patient is a unit of its own. Patients are assigned
    largest first, each to the split that is furthest below its share of the patient's classes.

    Args:
        labels: class of each image.
        patients: patient of each image, or "".
        valid: share of the images for validation.
        test: share of the images for testing.
        seed: random order of patients of equal size.
    """
    if valid < 0 or test < 0 or valid + test >= 1:
        raise DataError(f"shares of {valid} for validation and {test} for test leave nothing to train on")
    return [SPLITS[part] for part in _divide(labels, patients, np.array([1 - valid - test, valid, test]), seed)]


def stratified_folds(labels: Sequence[str], patients: Sequence[str], folds: int, seed: int) -> list[int]:
    """Assign a fold to each image, counted from 0; the folds are equally large as far as patients allow."""
    return _divide(labels, patients, np.full(folds, 1 / folds), seed)


def _divide(labels: Sequence[str], patients: Sequence[str], shares: np.ndarray, seed: int) -> list[int]:
    """Assign each image to a part, given the share [parts] of each."""
    classes = sorted(set(labels))
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, patient in enumerate(patients):
        members[("patient", patient) if patient else ("image", str(index))].append(index)

    rng = np.random.default_rng(seed)
    units = list(members.values())
    order = [units[k] for k in rng.permutation(len(units))]
    order.sort(key=len, reverse=True)

    totals = np.array([sum(label == name for label in labels) for name in classes])
    remaining = shares[:, None] * totals  # [part, class]: images still to assign
    result = [0] * len(labels)
    for unit in order:
        counts = np.array([sum(labels[i] == name for i in unit) for name in classes])
        deficit = (remaining / np.maximum(totals, 1)) @ counts  # [part]
        chosen = int(np.argmax(deficit))
        remaining[chosen] -= counts
        for index in unit:
            result[index] = chosen
    return result
