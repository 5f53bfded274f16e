"""Convolutions by oneDNN: plain and packed weights give what torch does."""

import pytest
import torch
from torch import nn

from histolumen.encoders import onednn


@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.ReLU6(), nn.SiLU()], ids=str)
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2)])
def test_the_result_is_that_of_torch(kernel, stride, dilation, activation):
    torch.manual_seed(0)
    conv = nn.Conv2d(8, 24, kernel, stride, padding=1, dilation=dilation)
    for images in (torch.randn(1, 8, 12, 17), torch.randn(3, 8, 7, 9)):
        with torch.inference_mode():
            expected = conv(images) if activation is None else activation(conv(images))
            sizes = conv.padding, conv.stride, conv.dilation
            weights = [conv.weight, onednn.packed(conv.weight, *sizes)]
            for weight in weights:
                found = onednn.convolve(images, weight, conv.bias, *sizes, activation=activation)
                assert torch.allclose(found, expected, atol=1e-5)


def test_kernels_of_one_pixel_and_of_groups_are_not_packed():
    assert onednn.packs(nn.Conv2d(8, 8, 3))
    assert not onednn.packs(nn.Conv2d(8, 8, 1))
    assert not onednn.packs(nn.Conv2d(8, 8, 3, groups=8))


def test_it_does_not_run_where_gradients_or_half_precision_are_asked_for():
    image = torch.zeros(1, 1, 4, 4)
    assert not onednn.can_run(image)  # gradients are on
    with torch.inference_mode():
        assert onednn.can_run(image)
        assert not onednn.can_run(image.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not onednn.can_run(image)
