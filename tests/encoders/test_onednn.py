"""Convolutions by oneDNN: plain and packed weights give what torch does."""

import copy
import pickle

import pytest
import torch
from torch import nn

from histolumen.encoders import onednn
from histolumen.encoders.onednn import PackedKernel


@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.ReLU6(), nn.SiLU()], ids=str)
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2)])
def test_the_result_is_that_of_torch(kernel, stride, dilation, activation):
    torch.manual_seed(0)
    conv = nn.Conv2d(8, 24, kernel, stride, padding=1, dilation=dilation)
    for images in (torch.randn(1, 8, 12, 17), torch.randn(3, 8, 7, 9)):
        with torch.inference_mode():
            expected = conv(images) if activation is None else activation(conv(images))
            sizes = conv.padding, conv.stride, conv.dilation
            for weight in (conv.weight, PackedKernel(conv.weight, *sizes).fitting(images)):
                found = onednn.convolve(images, weight, conv.bias, *sizes, activation=activation)
                assert torch.allclose(found, expected, atol=1e-5)


def test_a_kernel_is_packed_anew_for_another_size_and_few_copies_are_kept(monkeypatch):
    """The layout depends on the size of the input: one that does not fit takes many times as long."""
    sizes = []

    class Operators:
        @staticmethod
        def _reorder_convolution_weight(weight, padding, stride, dilation, groups, size):
            sizes.append(tuple(size))
            return weight.clone()

    monkeypatch.setattr(torch.ops, "mkldnn", Operators)
    kernel = PackedKernel(torch.randn(4, 3, 3, 3), (1, 1))
    small, large, larger = (torch.zeros(1, 3, side, side) for side in (8, 16, 24))
    assert kernel.fitting(small) is kernel.fitting(small)
    assert kernel.fitting(large) is kernel.fitting(large)
    kernel.fitting(small)
    assert sizes == [(1, 3, 8, 8), (1, 3, 16, 16)]
    kernel.fitting(larger)
    assert len(kernel._packed) <= 2


def test_a_used_kernel_can_be_copied_and_pickled():
    kernel, images = PackedKernel(torch.randn(8, 8, 3, 3), (1, 1)), torch.randn(1, 8, 9, 9)
    with torch.inference_mode():
        expected = onednn.convolve(images, kernel.fitting(images), None, (1, 1))
        for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
            assert torch.equal(onednn.convolve(images, other.fitting(images), None, (1, 1)), expected)


def test_it_does_not_run_where_gradients_or_half_precision_are_asked_for():
    image = torch.zeros(1, 1, 4, 4)
    assert not onednn.can_run(image)  # gradients are on
    with torch.inference_mode():
        assert onednn.can_run(image)
        assert not onednn.can_run(image.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not onednn.can_run(image)
