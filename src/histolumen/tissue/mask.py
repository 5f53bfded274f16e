"""Tissue detection on a slide: Otsu's threshold on the saturation of a thumbnail."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import ndimage
from skimage import filters, morphology

from histolumen.export.files import save_picture
from histolumen.export.overlay import draw_overlay
from histolumen.slides.reader import Region, Slide

SCALE = 32  # level-0 pixels per pixel of the thumbnail; a patch of 512 has 16 x 16
_THRESHOLD_LIMITS = (0.05, 0.20)  # saturation below is always glass, above always stained tissue
_BLACK = 30  # pixels with all channels up to this (pen, shadow, padding) have no meaningful saturation
_PREVIEW = 800  # approximate long side of the preview in pixels
_HOLE, _SPECK = 64, 16  # pixels: smaller holes are lumens and filled, smaller specks removed


@dataclass(frozen=True)
class Tissue:
    """A thumbnail of the slide [h, w, 3] and its tissue mask [h, w]."""

    picture: np.ndarray
    mask: np.ndarray
    scale: float
    """Level-0 pixels per pixel of the mask."""

    @property
    def share(self) -> float:
        """Share of the slide that is tissue."""
        return float(self.mask.mean())

    def touches(self, region: Region) -> bool:
        """Whether there is tissue in a region or in the mask pixels next to it."""
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
        """The mask on a grid of level-0 columns and rows [rows, columns], interpolated; 0 outside the slide."""
        down, across = (
            np.clip(points / self.scale - 0.5, 0, side - 1)
            for points, side in ((rows, self.mask.shape[0]), (columns, self.mask.shape[1]))
        )
        y, x = np.floor(down).astype(int), np.floor(across).astype(int)
        y1, x1 = np.minimum(y + 1, self.mask.shape[0] - 1), np.minimum(x + 1, self.mask.shape[1] - 1)
        dy, dx = (down - y)[:, None], (across - x)[None]
        top, left = y.min(), x.min()
        near = self.mask[top : y1.max() + 1, left : x1.max() + 1]  # one axis after the other, on what is needed
        if near.all() or not near.any():  # most places
            values = float(near[0, 0])
        else:
            lines = near[y - top] * (1 - dy) + near[y1 - top] * dy
            values = lines[:, x - left] * (1 - dx) + lines[:, x1 - left] * dx
        outside = (rows < 0) | (rows >= self.mask.shape[0] * self.scale)
        outside = outside[:, None] | ((columns < 0) | (columns >= self.mask.shape[1] * self.scale))[None]
        return np.where(outside, 0, values).astype(np.float32)

    @cached_property
    def widened(self) -> np.ndarray:
        """The mask dilated by one pixel."""
        return np.asarray(ndimage.binary_dilation(self.mask, np.ones((3, 3)))).astype(np.float32)

    def save_preview(self, path: Path) -> None:
        """Save the thumbnail with the tissue outlined and the rest dimmed."""
        times, step = max(1, _PREVIEW // max(self.mask.shape)), max(1, max(self.mask.shape) // (2 * _PREVIEW))
        picture, mask = (
            values[::step, ::step].repeat(times, 0).repeat(times, 1) for values in (self.picture, self.mask)
        )
        save_picture(draw_overlay(picture, mask, f"detected tissue: {100 * self.share:.0f} %"), path)


def find_tissue(slide: Slide, scale: float = SCALE, largest_lumen: int = _HOLE) -> Tissue:
    """Detect tissue on a thumbnail with `scale` level-0 pixels per pixel; see `tissue_mask`."""
    picture = slide.reduced(scale)
    return Tissue(picture, tissue_mask(picture, largest_lumen), scale)


def tissue_mask(picture: np.ndarray, largest_lumen: int = _HOLE) -> np.ndarray:
    """Tissue mask of a thumbnail.

    Args:
        picture: RGB [H, W, 3] uint8.
        largest_lumen: enclosed fields smaller than this many pixels belong to the tissue; larger ones are glass.

    Returns:
        [H, W] bool, small holes filled and specks removed.
    """
    smooth = ndimage.median_filter(picture, size=(3, 3, 1))
    high, low = smooth.max(2).astype(np.float32), smooth.min(2)
    saturation = np.where(high > _BLACK, (high - low) / np.maximum(high, 1), 0)
    mask = saturation > np.clip(otsu_threshold(saturation), *_THRESHOLD_LIMITS)
    closed = np.asarray(ndimage.binary_closing(np.pad(mask, 2, mode="edge"), np.ones((3, 3))), dtype=bool)
    mask = closed[2:-2, 2:-2]
    enclosed = np.asarray(ndimage.binary_fill_holes(mask)) & ~mask
    glass = morphology.remove_small_objects(enclosed, max_size=max(largest_lumen - 1, 0))
    return morphology.remove_small_objects(mask | (enclosed & ~glass), max_size=_SPECK - 1)


def otsu_threshold(values: np.ndarray) -> float:
    """The threshold in [0, 1] that maximises the variance between the two groups of values."""
    counts, edges = np.histogram(values, bins=256, range=(0, 1))
    if np.count_nonzero(counts) < 2:  # one value only: nothing to separate
        return float(edges[1])
    return float(filters.threshold_otsu(hist=(counts, edges[1:])))
