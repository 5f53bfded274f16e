"""A stand-in for a trained model, and pictures and tables for tests of prediction into a folder."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from histolumen.data.image import as_rgb
from histolumen.engine.prediction import Prediction
from histolumen.errors import ImageError


class LeftHalf:
    """Replaces a trained model: the mask is the left half, brighter images are more malignant."""

    identity = "left half"
    temperature = 1.0
    reference = None

    def predict(self, image: Path | np.ndarray) -> Prediction:
        pixels = as_rgb(image)
        height, width = pixels.shape[:2]
        if width > 20 * height:
            raise ImageError(f"{image}: {width} x {height} pixels is too narrow")
        malignant = float(pixels.mean() / 255)
        soft = np.tile(np.linspace(1, 0, width), (height, 1))
        return Prediction({"benign": 1 - malignant, "malignant": malignant}, soft, pixels)


def draw(path: Path, value: int = 51, size: tuple[int, int] = (12, 20)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*size, 3), value, np.uint8)).save(path)
    return path


def listed(out: Path) -> list[dict[str, str]]:
    with (out / "predictions.csv").open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))
