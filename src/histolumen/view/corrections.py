"""Masks that a person has corrected with the brush, saved beside their image."""

from dataclasses import replace

import numpy as np
from PIL import Image

from histolumen.export.files import save_binary_mask
from histolumen.export.geojson import GeoJsonStyle, save_geojson
from histolumen.export.regions import Raster, find_regions
from histolumen.view.items import Item
from histolumen.view.tiles import Geometry


def save_correction(item: Item, geometry: Geometry, drawn: np.ndarray, style: GeoJsonStyle) -> list[str]:
    """Write `NAME_corrected.png` (images only) and `NAME_corrected.geojson` for QuPath; returns the file names.

    Args:
        item: the image or slide.
        geometry: its size; the mask of an image is enlarged to it.
        drawn: mask [h, w] bool that covers the whole item, at any resolution.
        style: class of the regions, and the pixel in which GeoJSON has its origin.
    """
    written = []
    if item.kind != "slide":  # the mask of a slide would be as large as the slide
        drawn = _enlarged(drawn, (geometry.width, geometry.height))
        path = item.correction(".png")
        save_binary_mask(drawn, path)
        written.append(path.name)
    path = item.correction(".geojson")
    scale = geometry.width / drawn.shape[1]
    regions = find_regions(Raster.of(drawn.astype(np.float32)))
    save_geojson(regions, path, replace(style, name=f"{item.path.stem}/corrected", scale=scale))
    return [*written, path.name]


def _enlarged(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The mask at the size (width, height) of its image, with smooth edges."""
    if mask.shape == size[::-1]:
        return mask
    grey = Image.fromarray(np.where(mask, 255, 0).astype(np.uint8))
    return np.asarray(grey.resize(size, Image.Resampling.BILINEAR)) >= 128
