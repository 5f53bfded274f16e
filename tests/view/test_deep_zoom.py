import numpy as np
import pytest

from histolumen.view.items import Item, find_items
from histolumen.view.tiles import TILE, Geometry, Tiles


@pytest.fixture
def large(tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (700, 1100, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    return Item("x", "image", tmp_path / "large.png", "large.png"), pixels


def assembled(tiles, item, level):
    geometry = tiles.geometry(item)
    width, height = geometry.level_size(level)
    rows = [
        np.concatenate([tiles.tile(item, level, column, row) for column in range(-(-width // TILE))], axis=1)
        for row in range(-(-height // TILE))
    ]
    return np.concatenate(rows)


def test_the_tiles_of_the_last_level_are_the_image(large):
    item, pixels = large
    tiles = Tiles(10**8)
    assert np.array_equal(assembled(tiles, item, tiles.geometry(item).max_level), pixels)


def test_each_level_is_half_as_large(large):
    item, _ = large
    tiles = Tiles(10**8)
    geometry = tiles.geometry(item)
    for level in range(geometry.min_level, geometry.max_level):
        width, height = geometry.level_size(level + 1)
        assert assembled(tiles, item, level).shape[:2] == (-(-height // 2), -(-width // 2))
    assert max(geometry.level_size(geometry.min_level)) <= TILE


@pytest.mark.parametrize("place", [(99, 0, 0), (-1, 0, 0), (11, 3, 0), (11, 0, 2), (11, -1, 0), (11, 0, 10**9)])
def test_tiles_outside_the_image_do_not_exist(large, place):
    assert Tiles(10**8).tile(large[0], *place) is None


@pytest.mark.parametrize("size", [(1, 1), (512, 512), (513, 1), (100_000, 80_000)])
def test_geometry_of_any_size(size):
    geometry = Geometry(*size)
    assert 0 <= geometry.min_level <= geometry.max_level
    assert max(geometry.level_size(geometry.min_level)) <= TILE
    assert geometry.level_size(geometry.max_level) == size


def test_tiles_of_a_slide_are_its_pixels(slides):
    from gland_slides import tissue_picture

    [item] = find_items([], [slides])
    tiles = Tiles(10**8)
    geometry = tiles.geometry(item)
    assert geometry.mpp == pytest.approx(0.5, abs=1e-3)
    assert np.array_equal(assembled(tiles, item, geometry.max_level), tissue_picture())
    assert tiles.reduced(item, 100).size[0] == 100
