"""Dividing images into training, validation and test: stratified by class, whole patients together."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from histolumen.data.manifest import SPLITS, Split
from histolumen.errors import DataError


def stratified_split(labels: Sequence[str], groups: Sequence[str], valid: float, test: float, seed: int) -> list[Split]:
    """Assign a split to each image.

    Groups (patients) stay whole; an empty group is one image. Each group goes where its classes are most wanted, the
    largest groups first, so that every split comes as close as it can to its share of every class.

    Args:
        labels: class of each image.
        groups: patient of each image, or "".
        valid: share of the images for validation.
        test: share of the images for the test.
        seed: of the random order among groups of equal size.
    """
    if valid < 0 or test < 0 or valid + test >= 1:
        raise DataError(f"shares of {valid} for validation and {test} for test leave nothing to train on")
    classes = sorted(set(labels))
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[("group", group) if group else ("image", str(index))].append(index)

    rng = np.random.default_rng(seed)
    units = list(members.values())
    order = [units[k] for k in rng.permutation(len(units))]
    order.sort(key=len, reverse=True)

    shares = np.array([1 - valid - test, valid, test])
    totals = np.array([sum(label == name for label in labels) for name in classes])
    wanted = shares[:, None] * totals  # [split, class]: images still to come
    result: list[Split] = ["train"] * len(labels)
    for group in order:
        counts = np.array([sum(labels[i] == name for i in group) for name in classes])
        need = (wanted / np.maximum(totals, 1)) @ counts  # how far behind, on the classes of this group
        chosen = int(np.argmax(need))
        wanted[chosen] -= counts
        for index in group:
            result[index] = SPLITS[chosen]
    return result
