"""Which images of a split are shown where not all can be."""

import numpy as np

from histolumen.data.manifest import Row


def evenly(rows: list[Row], count: int) -> list[Row]:
    """Choose up to `count` rows at equal distances."""
    picked = np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)
    return [rows[index] for index in dict.fromkeys(picked.tolist())]
