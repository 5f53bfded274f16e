"""A slide of synthetic glands, and a model that answers for it."""

from pathlib import Path

import numpy as np
import pytest

from histolumen.data.synthetic import make_sample
from histolumen.slides.predict import SlideSettings
from slide_files import GLASS, write_slide

SMALL_TILES = SlideSettings(tile=256, overlap=64, model_mpp=0.5, min_area=10)


def tissue_picture(width: int = 640, height: int = 512, seed: int = 0) -> np.ndarray:
    """Glands and stroma on glass [H, W, 3]: a rim and one corner are empty."""
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = GLASS
    for left in range(64, width - 64, 256):
        for top in range(64, height - 64, 256):
            sample = make_sample("benign" if left < width / 2 else "malignant", 256, seed + left + top).image
            picture[top : top + 256, left : left + 256] = sample[: height - 64 - top, : width - 64 - left]
    picture[: height // 2, -width // 3 :] = GLASS
    return picture


@pytest.fixture(scope="session")
def gland_slide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """640 x 512 pixels at 0.5 microns."""
    return write_slide(tmp_path_factory.mktemp("slides") / "glands.tif", tissue_picture(), mpp=0.5)
