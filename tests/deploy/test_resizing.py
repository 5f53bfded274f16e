"""Sizes and pixels of an exported graph are those of the trained model's own pre-processing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from histolumen.data.transforms import ImageSettings, to_working_size, working_size
from histolumen.deploy.resizing import antialiased, antialiased_levels, graph_working_size, nearest, padded_to

SIDES = st.integers(20, 400)


def tensors(*values: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(value) for value in values)


@given(SIDES, SIDES, st.sampled_from([None, 40, 100, 440]), st.sampled_from([14, 16, 32]))
def test_working_sizes_are_equal(height, width, short_side, multiple):
    images = ImageSettings(short_side=short_side, crop=32)
    expected = working_size(height, width, images, multiple=multiple)
    found = graph_working_size(*tensors(height, width), images, multiple)
    assert tuple(int(side) for side in found) == expected


def test_a_half_is_rounded_up_whatever_the_size_of_the_image():
    """440 / 16 is 27.5. In floating point, images of some sizes became 432 pixels high and others 448."""
    settings = ImageSettings(short_side=440)
    assert {working_size(side, side, settings) for side in range(40, 600)} == {(448, 448)}


def test_a_square_does_not_depend_on_the_image():
    settings = ImageSettings(short_side=100, crop=96, resize="square")
    assert [int(side) for side in graph_working_size(*tensors(50, 90), settings, 16)] == [96, 96]


@settings(max_examples=25)
@given(SIDES, SIDES, st.integers(32, 300))
def test_bytes_are_resized_as_in_training(height, width, short_side):
    if max(height, width) > 19 * min(height, width):
        return
    image = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    expected = to_working_size(image, ImageSettings(short_side=short_side, crop=32))
    levels = torch.from_numpy(image).permute(2, 0, 1).float()
    found = antialiased_levels(levels, tensors(*expected.shape[1:]))
    difference = (found - expected).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 1e-3


@pytest.mark.parametrize("size", [(40, 30), (17, 90), (100, 131)])
def test_float_resizes_equal_those_of_torch(size):
    images = torch.rand(2, 3, 61, 47)
    expected = F.interpolate(images, size=size, mode="bilinear", antialias=True)
    torch.testing.assert_close(antialiased(images, tensors(*size)), expected, atol=1e-5, rtol=0)
    assert torch.equal(nearest(images, tensors(*size)), F.interpolate(images, size=size, mode="nearest-exact"))


def test_padding_repeats_the_border_and_crops():
    images = torch.arange(6.0).view(1, 1, 2, 3)
    assert padded_to(images, tensors(3, 2)).tolist() == [[[[0, 1], [3, 4], [3, 4]]]]
