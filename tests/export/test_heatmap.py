"""The heat map of a slide: each cell lies where it is on the slide."""

import numpy as np
import pytest

pyvips = pytest.importorskip("pyvips", reason="needs the extra [slides]")

from histolumen.export.heatmap import save_heatmap  # noqa: E402 - after the extra


@pytest.mark.parametrize(("scale", "size"), [(16.0, (415, 61)), (9.3, (240, 61)), (3.3, (85, 30)), (1.0, (26, 9))])
def test_values_lie_between_those_of_the_nearest_cells(tmp_path, scale, size):
    """A ramp of 10 levels per cell, read back at the size of the slide."""
    heat = np.tile(np.arange(0, 260, 10, dtype=np.uint8), (30, 1))
    save_heatmap(heat, scale, size, 0.25, tmp_path / "heat.tif")
    picture = pyvips.Image.new_from_file(str(tmp_path / "heat.tif"))
    assert (picture.width, picture.height) == size
    assert picture.xres == pytest.approx(4000)  # per millimetre
    pixels = picture.numpy().astype(float)
    expected = np.interp(np.arange(size[0]), (np.arange(26) + 0.5) * scale - 0.5, heat[0].astype(float))
    assert np.abs(pixels - expected).max() <= 5  # of compression, and of pixels that are repeated
    assert abs((pixels - expected).mean()) < 0.5  # not shifted
