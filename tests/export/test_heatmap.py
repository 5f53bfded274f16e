"""The heat map of a slide: each cell lies where it is on the slide."""

import numpy as np
import pytest

openslide = pytest.importorskip("openslide", reason="needs the extra [slides]")

from histolumen.export.heatmap import save_heatmap  # noqa: E402 - after the extra


@pytest.mark.parametrize(("scale", "size"), [(16.0, (415, 61)), (9.3, (240, 61)), (3.3, (85, 30)), (1.0, (26, 9))])
def test_values_lie_between_those_of_the_nearest_cells(tmp_path, scale, size):
    """A ramp of 10 levels per cell, read back at the size of the slide."""
    heat = np.tile(np.arange(0, 260, 10, dtype=np.uint8), (30, 1))
    save_heatmap(heat, scale, size, 0.25, tmp_path / "heat.tif")
    with openslide.OpenSlide(tmp_path / "heat.tif") as picture:
        assert picture.dimensions == size
        pixels = np.asarray(picture.read_region((0, 0), 0, size).convert("L")).astype(float)
    expected = np.interp(np.arange(size[0]), (np.arange(26) + 0.5) * scale - 0.5, heat[0].astype(float))
    assert np.abs(pixels - expected).max() <= 5  # of compression, and of pixels that are repeated
    assert abs((pixels - expected).mean()) < 0.5  # not shifted


@pytest.mark.parametrize("scale", [16.0, 9.3, 3.3])
def test_every_level_shows_the_whole_heat_map(tmp_path, scale):
    height, width = 150, 260
    heat = np.add.outer(np.arange(height), np.arange(width)) * 255 // (height + width)
    size = int(width * scale), int(height * scale)
    save_heatmap(heat.astype(np.uint8), scale, size, 0.25, tmp_path / "heat.tif")
    with openslide.OpenSlide(tmp_path / "heat.tif") as slide:
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.25)
        assert max(slide.level_dimensions[-1]) <= 256
        for level, (across, down) in enumerate(slide.level_dimensions):
            pixels = np.asarray(slide.read_region((0, 0), level, (across, down)).convert("L")).astype(float)
            for x, y in ((0.1, 0.2), (0.5, 0.5), (0.9, 0.7), (0.98, 0.98)):
                expected = 255 * (x * width + y * height) / (height + width)
                assert pixels[int(y * down), int(x * across)] == pytest.approx(expected, abs=5)
