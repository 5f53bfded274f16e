"""Patches that follow the tumour outlines, as in the survey's protocol.

Every connected tumour region is covered by rows of patches of its own. The first row begins half a patch above the
region, the next ones follow at the height of a patch. In a row, a window moves to the right pixel by pixel until it
has enough tumour and tissue: this is the first patch, often with just above 20 % tumour. From there the window moves by
whole patches, and every one with enough tumour and tissue is taken. Patches of one region never overlap; those of
neighbouring regions may.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from histolumen.data.sources.camelyon16.published_list import Place
from histolumen.slides.annotations import tumour_mask

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

PATCH = 512  # side in level-0 pixels
MIN_TUMOUR = 0.20  # share of the pixels of a metastatic patch


def scan_outlines(
    tumour: "BaseGeometry", size: tuple[int, int], has_tissue: Callable[[Place], bool]
) -> dict[Place, float]:
    """Places and tumour shares of the metastatic patches of a slide, row by row.

    Args:
        tumour: outlined tumour in level-0 pixels.
        size: width and height of the slide; patches lie wholly inside.
        has_tissue: whether a patch has enough tissue.
    """
    import shapely  # noqa: PLC0415 - an extra

    shapely.prepare(tumour)
    found: dict[Place, float] = {}
    for region in shapely.get_parts(tumour):
        left, top, right, bottom = region.bounds
        last_top = min(math.ceil(bottom), size[1] - PATCH + 1)
        for row in range(max(0, math.floor(top) - PATCH // 2), last_top, PATCH):
            first, last = max(0, math.floor(left) - PATCH), min(math.ceil(right), size[0] - PATCH)
            found.update(_scan_row(tumour, row, first, last, has_tissue))
    return dict(sorted(found.items(), key=lambda item: (item[0][1], item[0][0])))


def _scan_row(
    tumour: "BaseGeometry", top: int, first: int, last: int, has_tissue: Callable[[Place], bool]
) -> Iterator[tuple[Place, float]]:
    """Patches of one row whose left side lies in [first, last]."""
    shares = _window_shares(tumour, top, first, last)
    enough = np.flatnonzero(shares >= MIN_TUMOUR)
    start = next((offset for offset in enough if has_tissue((first + int(offset), top))), None)
    if start is None:
        return
    for offset in range(int(start), len(shares), PATCH):
        place = (first + offset, top)
        if shares[offset] >= MIN_TUMOUR and has_tissue(place):
            yield place, float(shares[offset])


def _window_shares(tumour: "BaseGeometry", top: int, first: int, last: int) -> np.ndarray:
    """Tumour share of the patch at every left side in [first, last], from running sums of the columns."""
    if last < first:
        return np.zeros(0)
    columns = [tumour_mask(tumour, left, top, PATCH).sum(0) for left in range(first, last + PATCH, PATCH)]
    sums = np.concatenate([[0], np.cumsum(np.concatenate(columns))])
    count = last - first + 1
    return (sums[PATCH : PATCH + count] - sums[:count]) / PATCH**2
