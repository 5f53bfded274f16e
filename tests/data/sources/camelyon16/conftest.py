"""The large slide under the real outlines of tumor_073, built once."""

from pathlib import Path

import numpy as np
import pytest
from slide_files import GLASS, speckled, write_mosaic_slide

REAL = Path(__file__).parents[5] / "shared" / "data" / "slides"
TISSUE_ROWS, TISSUE_COLUMNS = slice(112, 128), slice(82, 96)


@pytest.fixture(scope="session")
def real_outlines():
    """Folder of the real outlines."""
    if not (REAL / "tumor_073.xml").is_file():
        pytest.skip("real outlines are not at hand")
    return REAL


@pytest.fixture(scope="session")
def large_slide(tmp_path_factory):
    """A slide of 49,152 x 65,536 pixels, the size of tumor_073, with tissue where its tumour is."""
    layout = np.zeros((128, 96), int)
    layout[TISSUE_ROWS, TISSUE_COLUMNS] = 1
    tiles = [np.full((512, 512, 3), GLASS, np.uint8), speckled(512, 512)]
    return write_mosaic_slide(tmp_path_factory.mktemp("large") / "tumor_073.tif", tiles, layout)
