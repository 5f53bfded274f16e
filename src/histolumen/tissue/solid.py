"""Solid regions: a mask without small holes and without specks."""

import numpy as np
from pydantic import Field

from histolumen.components import without_small_regions
from histolumen.settings import Settings

_THRESHOLD = 0.5


class MaskSettings(Settings):
    """Last step of an image's mask; areas are in square microns if `images.mpp` is set, else in pixels."""

    fill_holes: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Holes in the foreground up to this area are filled; 0: none."""
    min_area: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Regions of the foreground up to this area are removed; 0: none."""


def make_solid(soft_mask: np.ndarray, settings: MaskSettings, mpp: float | None = None) -> np.ndarray:
    """Fill holes, then remove specks.

    The soft mask p of a pixel that changes sides becomes 1 - p: the binary mask, the soft mask and outlines agree, and
    p stays as far from the threshold as it was.

    Args:
        soft_mask: [H, W] in [0, 1].
        settings: the areas.
        mpp: microns per pixel; None: areas are in pixels.
    """
    if not settings.fill_holes and not settings.min_area:
        return soft_mask
    pixels_per_area = 1.0 if mpp is None else 1 / mpp**2
    before = soft_mask >= _THRESHOLD
    mask = ~without_small_regions(~before, int(settings.fill_holes * pixels_per_area))
    mask = without_small_regions(mask, int(settings.min_area * pixels_per_area))
    different = mask != before
    below = np.nextafter(np.float32(_THRESHOLD), np.float32(0))
    opposite = 1 - soft_mask[different]
    solid = soft_mask.copy()
    solid[different] = np.where(mask[different], np.maximum(opposite, _THRESHOLD), np.minimum(opposite, below))
    return solid
