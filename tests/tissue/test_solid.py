"""Holes are filled and specks removed by area; the binary and the soft mask agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from histolumen.tissue.solid import MaskSettings, make_solid


def mask_with_a_hole_and_a_speck() -> np.ndarray:
    soft = np.full((40, 60), 0.1, np.float32)
    soft[5:30, 5:30] = 0.9
    soft[10:14, 10:14] = 0.3  # 16 pixels
    soft[35:38, 50:53] = 0.8  # 9 pixels
    return soft


def test_without_settings_nothing_changes():
    soft = mask_with_a_hole_and_a_speck()
    assert make_solid(soft, MaskSettings()) is soft


def test_holes_and_specks_up_to_the_area_change_sides_and_keep_their_distance():
    solid = make_solid(mask_with_a_hole_and_a_speck(), MaskSettings(fill_holes=16, min_area=9))
    assert solid[11, 11] == pytest.approx(0.7)
    assert solid[36, 51] == pytest.approx(0.2)
    assert solid[6, 6] == pytest.approx(0.9)


def test_larger_ones_stay():
    soft = mask_with_a_hole_and_a_speck()
    assert np.array_equal(make_solid(soft, MaskSettings(fill_holes=15, min_area=8)), soft)


def test_areas_are_in_square_microns_where_the_resolution_is_known():
    soft = mask_with_a_hole_and_a_speck()
    assert make_solid(soft, MaskSettings(fill_holes=4), mpp=0.5)[11, 11] > 0.5  # 16 pixels
    assert make_solid(soft, MaskSettings(fill_holes=3), mpp=0.5)[11, 11] < 0.5


@given(arrays.arrays(np.float32, (12, 15), elements=st.floats(0, 1, width=32)), st.integers(0, 40), st.integers(0, 40))
def test_the_result_is_a_soft_mask_that_needs_no_second_pass(soft, holes, area):
    settings = MaskSettings(fill_holes=holes, min_area=area)
    solid = make_solid(soft, settings)
    assert solid.dtype == soft.dtype
    assert 0 <= solid.min() <= solid.max() <= 1
    assert np.array_equal(make_solid(solid, MaskSettings(min_area=area)), solid)
