"""A slide of synthetic glands, and settings to predict it in small tiles."""

import numpy as np
from slide_files import GLASS

from histolumen.data.sources.synthetic_image import make_sample
from histolumen.engine.slides.predict import SlideSettings

SMALL_TILES = SlideSettings(tile=256, overlap=64, model_mpp=0.5, min_area=10)


def tissue_picture(width: int = 640, height: int = 512, seed: int = 0) -> np.ndarray:
    """Glands and stroma on glass [H, W, 3]: a rim and one corner are empty."""
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = GLASS
    for left in range(64, width - 64, 256):
        for top in range(64, height - 64, 256):
            sample = make_sample("benign" if left < width / 2 else "malignant", 256, seed + left + top).image
            down, across = min(256, height - 64 - top), min(256, width - 64 - left)
            picture[top : top + down, left : left + across] = sample[:down, :across]
    picture[: height // 2, -width // 3 :] = GLASS
    return picture
