"""Erosion and dilation by shifted copies equal scipy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage

from histolumen.neighbours import dilated, eroded

masks = arrays.arrays(bool, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9))


@given(masks, st.integers(1, 4), st.booleans())
def test_erosion_equals_scipys(mask, steps, outside):
    before = mask.copy()
    expected = ndimage.binary_erosion(mask, iterations=steps, border_value=int(outside))
    assert np.array_equal(eroded(mask, steps, outside=outside), expected)
    assert np.array_equal(mask, before)


@given(masks, st.integers(1, 4))
def test_dilation_equals_scipys(mask, steps):
    assert np.array_equal(dilated(mask, steps), ndimage.binary_dilation(mask, iterations=steps))
