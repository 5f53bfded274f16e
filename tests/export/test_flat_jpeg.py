"""JPEG tiles of flat blocks: what any decoder reads is what was written."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from histolumen.export.flat_jpeg import BLOCK, encode_flat


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_every_value_is_kept(values):
    assert np.array_equal(decoded(encode_flat(values)), np.kron(values, np.ones((BLOCK, BLOCK), np.uint8)))


@pytest.mark.parametrize("step", range(1, 256))
def test_every_difference_is_encoded(step):
    values = np.tile(np.array([0, step], np.uint8), (2, 8))
    assert np.array_equal(decoded(encode_flat(values))[::BLOCK, ::BLOCK], values)


def test_an_empty_tile_is_small():
    assert len(encode_flat(np.zeros((64, 64), np.uint8))) < 1300
