"""Convolutions with half of the multiplications: the result of the plain ones, at any size."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from histolumen.encoders import winograd
from histolumen.encoders.folding import FoldedConv


def random_conv(inputs: int, outputs: int, **changes) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(inputs, outputs, **{"kernel_size": 3, "padding": 1, **changes})


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 23), st.integers(1, 17)),
    st.sampled_from([2**21, 400]),
    st.booleans(),
)
def test_the_result_is_that_of_the_plain_convolution(size, values_at_once, biased):
    count, height, width = size
    conv = random_conv(16, 32, bias=biased)
    images = torch.randn(count, 16, height, width)
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "_VALUES_AT_ONCE", values_at_once)  # a few values: many strips
        found = winograd.convolve(images, winograd.row_kernels(conv.weight), conv.bias, 32)
        assert torch.allclose(found, conv(images), atol=1e-5)


@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.ReLU6(), nn.SiLU()], ids=str)
def test_activations_follow(activation):
    conv = random_conv(16, 16)
    images = 20 * torch.randn(1, 16, 9, 9)
    with torch.inference_mode():
        found = winograd.convolve(images, winograd.row_kernels(conv.weight), conv.bias, 16, activation)
        expected = conv(images) if activation is None else activation(conv(images))
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "suits"),
    [
        ({}, True),
        ({"stride": 2}, False),
        ({"dilation": 2, "padding": 2}, False),
        ({"groups": 2}, False),
        ({"kernel_size": 5, "padding": 2}, False),
    ],
)
def test_only_plain_kernels_of_three_pixels_suit(changes, suits):
    assert winograd.suits(random_conv(64, 64, **changes)) == suits
    assert not winograd.suits(random_conv(32, 64, **changes))
    assert not winograd.suits(random_conv(64, 512, **changes))


@pytest.mark.parametrize(("side", "padding", "grad", "used"), [
    (26, 1, False, True),
    (9, 1, False, False),
    (26, 0, False, False),
    (26, 1, True, False),
])  # fmt: skip
def test_a_folded_convolution_uses_it_where_it_gains(monkeypatch, side, padding, grad, used):
    calls = []
    original = winograd.convolve
    monkeypatch.setattr(winograd, "convolve", lambda *given: calls.append(1) or original(*given))
    conv = random_conv(64, 64, padding=padding)
    images = torch.randn(1, 64, side, side)
    with torch.set_grad_enabled(grad):
        found = FoldedConv(conv, None, nn.ReLU())(images)
        assert torch.allclose(found, conv(images).relu(), atol=1e-5)
    assert bool(calls) == used


def test_small_maps_are_computed_so_only_where_it_is_asked_for():
    small = torch.zeros(1, 64, 9, 9)
    with winograd.at_any_size():
        assert winograd.is_large_enough(small)
    assert not winograd.is_large_enough(small)


def test_the_precision_is_that_of_the_input_whatever_the_default_is():
    conv, images = random_conv(64, 64), torch.randn(2, 64, 9, 9)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            found = winograd.convolve(images, winograd.row_kernels(conv.weight), conv.bias, 64)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32


def test_a_map_that_has_been_read_stays_as_it_was():
    conv, images = random_conv(64, 64), torch.randn(1, 64, 32, 32).contiguous(memory_format=torch.channels_last)
    before = images.clone()
    with torch.inference_mode():
        winograd.convolve(images, winograd.row_kernels(conv.weight), conv.bias, 64, nn.ReLU())
    assert torch.equal(images, before)
