"""Solid regions: a mask without small holes and without specks."""

import numpy as np
from pydantic import Field

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
    from skimage import morphology  # noqa: PLC0415 - slow to import

    pixels_per_area = 1.0 if mpp is None else 1 / mpp**2
    before = soft_mask >= _THRESHOLD
    mask = morphology.remove_small_holes(before, max_size=int(settings.fill_holes * pixels_per_area))
    mask = morphology.remove_small_objects(mask, max_size=int(settings.min_area * pixels_per_area))
    below = np.nextafter(np.float32(_THRESHOLD), np.float32(0))
    changed = np.where(mask, np.maximum(1 - soft_mask, _THRESHOLD), np.minimum(1 - soft_mask, below))
    return np.where(mask != before, changed, soft_mask).astype(soft_mask.dtype)
