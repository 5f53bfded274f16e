"""PNG files: another library reads the same pixels."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from histolumen.export import png

sides = st.integers(1, 12)
grey = st.tuples(sides, sides)
pictures = st.one_of(
    arrays.arrays(np.uint8, grey),
    arrays.arrays(np.uint16, grey),
    arrays.arrays(np.uint8, st.tuples(sides, sides, st.just(3))),
)


def read_back(pixels: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    png.write_png(pixels, file)
    file.seek(0)
    with Image.open(file) as picture:
        picture.verify()
    file.seek(0)
    return np.asarray(Image.open(file))


@given(pictures)
def test_pixels_are_read_back_unchanged(pixels):
    read = read_back(pixels)
    assert read.dtype == pixels.dtype
    assert np.array_equal(read, pixels)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_blocks_of_lines_give_the_same_picture(monkeypatch, rows):
    monkeypatch.setattr(png, "_ROWS", rows)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 9, 3)).astype(np.uint8)
    assert np.array_equal(read_back(pixels), pixels)


def test_arrays_in_another_order_are_written_as_they_look():
    pixels = np.random.default_rng(0).integers(0, 65535, (6, 8)).astype(np.uint16)
    assert np.array_equal(read_back(pixels[::-1, ::2]), pixels[::-1, ::2])
