"""Where on a slide there is tissue: Otsu's threshold on the saturation of a small picture of it."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import ndimage

from histolumen.export.files import save_picture
from histolumen.export.overlay import draw_overlay
from histolumen.slides.reader import Region, Slide

SCALE = 32  # level-0 pixels per pixel of the picture; 16 x 16 of them in a patch of 512
_LIMITS = (0.05, 0.20)  # where Otsu may put it: glass is never below, and what is above is stained
_BLACK = 30  # brightest channel of pen, shadow or padding, whose saturation means nothing
_PREVIEW = 800  # pixels; the preview has about one to two times as many
_HOLE, _SPECK = 64, 16  # pixels: smaller holes are closed, smaller specks left out


@dataclass(frozen=True)
class Tissue:
    """A picture of the slide [h, w, 3] and which of its pixels are tissue [h, w]."""

    picture: np.ndarray
    mask: np.ndarray
    scale: float
    """Level-0 pixels per pixel of the mask."""

    @property
    def share(self) -> float:
        """Share of the slide that is tissue."""
        return float(self.mask.mean())

    def touches(self, region: Region) -> bool:
        """Whether a region, or what is right beside it, has any tissue."""
        return bool(self.widened[self._pixels(region)].any())

    def share_of(self, region: Region) -> float:
        """Share of a region that is tissue, at the mask's resolution."""
        inside = self.mask[self._pixels(region)]
        total = (region.width / self.scale) * (region.height / self.scale)
        return min(1.0, float(inside.sum()) / total) if inside.size else 0.0

    def _pixels(self, region: Region) -> tuple[slice, slice]:
        """The pixels of the mask that a region touches."""
        height, width = self.mask.shape
        top, left = (max(0, math.floor(side / self.scale)) for side in (region.top, region.left))
        bottom = min(height, math.ceil((region.top + region.height) / self.scale))
        right = min(width, math.ceil((region.left + region.width) / self.scale))
        return slice(top, max(top, bottom)), slice(left, max(left, right))

    def soft(self, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Tissue at points of a grid, given by their level-0 columns and rows [rows, columns], in [0, 1] without steps.

        Wider than the mask by half of its pixels, so that what touches tissue counts.
        """
        down, across = (
            np.clip(points / self.scale - 0.5, 0, side - 1)
            for points, side in ((rows, self.mask.shape[0]), (columns, self.mask.shape[1]))
        )
        y, x = np.floor(down).astype(int), np.floor(across).astype(int)
        wide = self.widened
        y1, x1 = np.minimum(y + 1, wide.shape[0] - 1), np.minimum(x + 1, wide.shape[1] - 1)
        dy, dx = (down - y)[:, None], (across - x)[None]
        upper = wide[np.ix_(y, x)] * (1 - dx) + wide[np.ix_(y, x1)] * dx
        lower = wide[np.ix_(y1, x)] * (1 - dx) + wide[np.ix_(y1, x1)] * dx
        outside = (rows < 0) | (rows >= self.mask.shape[0] * self.scale)
        outside = outside[:, None] | ((columns < 0) | (columns >= self.mask.shape[1] * self.scale))[None]
        return np.where(outside, 0, upper * (1 - dy) + lower * dy).astype(np.float32)

    @cached_property
    def widened(self) -> np.ndarray:
        """The mask, one pixel wider."""
        return np.asarray(ndimage.binary_dilation(self.mask, np.ones((3, 3)))).astype(np.float32)

    def save_preview(self, path: Path) -> None:
        """A picture of what was taken as tissue, outlined, the rest faded."""
        times, step = max(1, _PREVIEW // max(self.mask.shape)), max(1, max(self.mask.shape) // (2 * _PREVIEW))
        picture, mask = (
            values[::step, ::step].repeat(times, 0).repeat(times, 1) for values in (self.picture, self.mask)
        )
        save_picture(draw_overlay(picture, mask, f"taken as tissue: {100 * self.share:.0f} %"), path)


def find_tissue(slide: Slide, scale: float = SCALE) -> Tissue:
    """Look at the whole slide at `scale` level-0 pixels per pixel."""
    picture = slide.reduced(scale)
    return Tissue(picture, tissue_mask(picture), scale)


def tissue_mask(picture: np.ndarray) -> np.ndarray:
    """Which pixels of a small picture of a slide are tissue.

    Args:
        picture: RGB [H, W, 3] uint8.

    Returns:
        [H, W] bool, small holes closed and specks left out.
    """
    smooth = ndimage.median_filter(picture, size=(3, 3, 1))
    high, low = smooth.max(2).astype(np.float32), smooth.min(2)
    saturation = np.where(high > _BLACK, (high - low) / np.maximum(high, 1), 0)
    mask = saturation > np.clip(otsu(saturation), *_LIMITS)
    mask = np.asarray(ndimage.binary_closing(np.pad(mask, 2, mode="edge"), np.ones((3, 3))))[2:-2, 2:-2]
    filled = np.logical_not(_without_small(np.logical_not(mask), _HOLE))
    return _without_small(filled, _SPECK)


def otsu(values: np.ndarray) -> float:
    """The threshold in [0, 1] that best separates values into two groups (largest variance between them)."""
    counts, edges = np.histogram(values, bins=256, range=(0, 1))
    centres = (edges[:-1] + edges[1:]) / 2
    below = counts.cumsum()
    above = below[-1] - below
    sums = (counts * centres).cumsum()
    with np.errstate(invalid="ignore", divide="ignore"):
        between = below * above * (sums / below - (sums[-1] - sums) / above) ** 2
    return float(edges[1:][np.nanargmax(np.nan_to_num(between))])


def _without_small(mask: np.ndarray, pixels: int) -> np.ndarray:
    """The mask without its connected parts of fewer pixels."""
    parts = np.empty(mask.shape, np.int32)
    ndimage.label(mask, output=parts)
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return (sizes >= pixels)[parts]
