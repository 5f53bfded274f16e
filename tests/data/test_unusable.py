"""Images that carry no information get no class: they are refused, in prediction and evaluation."""

import re

import numpy as np
import pytest

import histolumen
from commands import histolumen as run
from histolumen.data.transforms import ImageSettings, refuse_unusable, to_working_size
from histolumen.errors import ImageError


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (noise(1, 1), "too small"),
        (noise(7, 40), "too small"),
        (np.full((64, 64, 3), 255, np.uint8), "one plain colour"),
        (np.zeros((64, 64, 3), np.uint8), "one plain colour"),
        (np.full((64, 64, 3), (200, 120, 180), np.uint8), "one plain colour"),
        (250 + noise(64, 64) % 3, "one plain colour"),  # a plain image after JPEG
        (noise(16, 16 * 21), "too narrow"),
    ],
)
def test_an_image_without_information_is_refused(image, reason, tmp_path):
    with pytest.raises(ImageError, match=reason):
        refuse_unusable(image, tmp_path / "x.png")


@pytest.mark.parametrize("size", [(8, 8), (16, 320), (64, 48)])
def test_small_images_with_content_are_accepted(size):
    refuse_unusable(noise(*size))


def test_one_row_of_5000_pixels_asks_for_no_memory(tmp_path):
    """Resized to a short side of 432 it would have 432 x 2,160,000 pixels."""
    with pytest.raises(ImageError, match=re.escape("5000 x 1 pixels")):
        to_working_size(noise(1, 5000), ImageSettings(), tmp_path / "x.png")


def test_a_white_image_is_left_out_of_a_batch(tiny_run, tiny_manifest, tmp_path):
    from PIL import Image

    good = tiny_manifest.image_path(tiny_manifest.rows[0])
    Image.new("RGB", (80, 80), "white").save(tmp_path / "white.png")
    result = run("predict", tiny_run, tmp_path / "white.png", good, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "left out: " in result.stderr
    assert "white.png: one plain colour" in result.stderr
    assert "1 of 2 images done" in result.stdout


def test_python_gets_the_same_error(tiny_run):
    with pytest.raises(ImageError, match="one plain colour"):
        histolumen.load(tiny_run).predict(np.zeros((64, 64, 3), np.uint8))
