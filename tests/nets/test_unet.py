"""The U-Net and the image-guided decoder: parameter counts and output sizes."""

import pytest
import torch

from histolumen.nets.decoder import Decoder
from histolumen.nets.unet import UNet, UpStep


@pytest.mark.parametrize("upsampling", ["nearest", "bilinear"])
def test_unet_has_the_papers_number_of_parameters(upsampling):
    assert sum(p.numel() for p in UNet(upsampling).parameters()) == 14_154_706


def test_a_level_of_the_decoder_convolves_and_then_repeats_each_value():
    step = UpStep(8, 4, "nearest").eval()
    x, skip = torch.rand(1, 8, 3, 5), torch.zeros(1, 4, 6, 10)
    seen = []
    step.after.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        step(x, skip)
        convolved = step.before(x)
    assert torch.equal(seen[0][:, :8], convolved.repeat_interleave(2, 2).repeat_interleave(2, 3))
    assert not seen[0][:, 8:].any()  # the skip connection


@pytest.mark.parametrize("size", [(64, 64), (50, 90), (33, 47)])
def test_unet_accepts_any_size(size):
    with torch.no_grad():
        assert UNet().eval()(torch.rand(1, 3, *size)).shape == (1, 2, *size)


@pytest.mark.parametrize(("stride", "factor"), [(4, 1), (16, 4), (32, 8)])
def test_the_decoder_ends_at_a_quarter_of_the_image(stride, factor):
    decoder = Decoder(7, stride, width=8).eval()
    logits = decoder(torch.rand(2, 7, 3, 5), torch.rand(2, 3, 3 * stride, 5 * stride))
    assert logits.shape == (2, 2, 3 * factor, 5 * factor)
