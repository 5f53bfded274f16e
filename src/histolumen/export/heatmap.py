"""A soft mask as a pyramidal TIFF for OpenSlide and QuPath."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from histolumen.atomic import new_file
from histolumen.export.flat_jpeg import BLOCK, encode_flat
from histolumen.export.tiff import TILE, Level, write_pyramid

_QUALITY = 95  # of tiles that are not flat; changes values by at most 2 of 255
_SMALLEST = 256  # side of the last level
_NEXT = 4  # reduction of the level after one of flat blocks


def save_heatmap(heat: np.ndarray, scale: float, size: tuple[int, int], mpp: float, path: Path) -> None:
    """Enlarge a heat map to the size of its slide and write it as a pyramidal TIFF with its resolution.

    Where a cell has eight pixels of the slide or more, they are interpolated in blocks of eight: the heat map has no
    more detail, and flat blocks take a small part of the time and space.

    Args:
        heat: [h, w] uint8, 255 is 1.
        scale: pixels of the slide per pixel of the heat map.
        size: width and height of the slide.
        mpp: microns per pixel of the slide.
        path: of the TIFF to write.
    """
    # one more cell, since the last pixel of a level may reach beyond the slide
    cells = Image.fromarray(np.pad(heat, ((0, 1), (0, 1)), mode="edge"))
    with new_file(path) as temporary, temporary.open("wb") as file:
        write_pyramid(file, _levels(cells, scale, size), 10_000 / mpp)


def _levels(cells: Image.Image, scale: float, size: tuple[int, int]) -> Iterator[Level]:
    flat = scale >= BLOCK
    yield Level(*size, _flat_tiles(cells, scale, size) if flat else _tiles(cells, scale, size, 1))
    reduction, width, height = 1, *size
    while max(width, height) > _SMALLEST:
        reduction = _NEXT if flat and reduction == 1 else 2 * reduction
        width, height = (-(-side // reduction) for side in size)
        yield Level(width, height, _tiles(cells, scale, size, reduction))


def _tiles(cells: Image.Image, scale: float, size: tuple[int, int], reduction: int) -> Iterator[bytes]:
    """Tiles of the slide, reduced."""
    for row in _rows(cells, scale, size, reduction, TILE):
        for left in range(0, row.shape[1], TILE):
            tile = io.BytesIO()
            Image.fromarray(row[:, left : left + TILE]).save(tile, "JPEG", quality=_QUALITY)
            yield tile.getvalue()


def _flat_tiles(cells: Image.Image, scale: float, size: tuple[int, int]) -> Iterator[bytes]:
    """Tiles of the slide at its full size, in flat blocks."""
    side = TILE // BLOCK
    for row in _rows(cells, scale, size, BLOCK, side):
        for left in range(0, row.shape[1], side):
            yield encode_flat(row[:, left : left + side])


def _rows(cells: Image.Image, scale: float, size: tuple[int, int], reduction: int, side: int) -> Iterator[np.ndarray]:
    """Rows of tiles [side, n * side] of the reduced slide; beyond its border, pixels are repeated."""
    width, height = (-(-length // reduction) for length in size)
    right = min(width * reduction / scale, cells.width)
    for top in range(0, height, side):
        bottom = min(top + side, height)
        limits = [min(edge * reduction / scale, cells.height) for edge in (top, bottom)]
        box = (0.0, limits[0], right, limits[1])
        pixels = np.asarray(cells.resize((width, bottom - top), Image.Resampling.BILINEAR, box=box))
        yield np.pad(pixels, ((0, side - len(pixels)), (0, -width % side)), mode="edge")
