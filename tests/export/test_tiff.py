"""Pyramidal TIFF files: other software reads size, resolution, levels and pixels."""

import io

import numpy as np
import pytest
from PIL import Image

openslide = pytest.importorskip("openslide", reason="needs the extra [slides]")

from histolumen.export.flat_jpeg import encode_flat  # noqa: E402 - after the extra
from histolumen.export.tiff import TILE, Level, write_pyramid  # noqa: E402

SIDE = TILE // 8


def tile(value: int) -> bytes:
    return encode_flat(np.full((SIDE, SIDE), value, np.uint8))


@pytest.fixture
def pyramid(tmp_path):
    """Two rows of three tiles, which reach beyond the picture, and a smaller level of one tile."""
    with (tmp_path / "picture.tif").open("wb") as file:
        levels = [
            Level(2 * TILE + 100, TILE + 7, map(tile, (10, 20, 30, 40, 10, 10))),
            Level(TILE // 2, TILE // 4, [tile(99)]),
        ]
        write_pyramid(file, levels, pixels_per_cm=20_000)
    return tmp_path / "picture.tif"


def test_openslide_reads_levels_resolution_and_pixels(pyramid):
    with openslide.OpenSlide(pyramid) as slide:
        assert slide.level_dimensions == ((2 * TILE + 100, TILE + 7), (TILE // 2, TILE // 4))
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.5)
        places = [(0, 0), (TILE, 0), (2 * TILE, 0), (0, TILE), (TILE, TILE), (2 * TILE + 99, TILE + 6)]
        values = [slide.read_region(place, 0, (1, 1)).getpixel((0, 0)) for place in places]
        assert [value[0] for value in values] == [10, 20, 30, 40, 10, 10]
        assert slide.read_region((0, 0), 1, (1, 1)).getpixel((0, 0))[0] == 99


def test_pillow_reads_it_too(pyramid):
    with Image.open(pyramid) as picture:
        assert picture.size == (2 * TILE + 100, TILE + 7)
        assert picture.n_frames == 2
        assert np.asarray(picture)[0, [0, TILE, 2 * TILE]].tolist() == [10, 20, 30]


def test_equal_tiles_are_stored_once():
    lengths = []
    for values in ([7] * 50, range(50)):
        file = io.BytesIO()
        write_pyramid(file, [Level(50 * TILE, TILE, map(tile, values))], 1000)
        lengths.append(len(file.getvalue()))
    assert lengths[0] < lengths[1] - 48 * len(tile(7)) / 2
