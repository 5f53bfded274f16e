"""Stain jitter: the identity changes nothing, each stain changes its own colours, masks are unchanged."""

import pytest
import torch

from histolumen.data.stain import StainJitter, restain
from histolumen.data.transforms import ImageSettings, training_transform
from histolumen.vision import tv_tensors

ONES, NONE = torch.ones(3), torch.zeros(3)


def test_the_same_amounts_give_the_same_image():
    image = torch.randint(0, 256, (3, 20, 30), dtype=torch.uint8)
    assert (restain(image, ONES, NONE).int() - image.int()).abs().max() <= 1


def test_more_stain_is_darker_and_glass_stays_glass():
    tissue, glass = torch.full((3, 4, 4), 120, dtype=torch.uint8), torch.full((3, 4, 4), 255, dtype=torch.uint8)
    assert restain(tissue, 1.5 * ONES, NONE).float().mean() < 100
    assert torch.equal(restain(glass, 1.5 * ONES, NONE), glass)


@pytest.mark.parametrize(("stain", "channel"), [(0, 0), (1, 1)])
def test_haematoxylin_absorbs_red_and_eosin_green(stain, channel):
    shift = torch.eye(3)[stain] * 0.3
    before = torch.full((3, 2, 2), 180, dtype=torch.uint8)
    loss = (before.float() - restain(before, ONES, shift).float()).mean((1, 2))
    assert loss[channel] > loss[2]
    assert (loss >= 0).all()


def test_masks_and_proposals_are_not_stained():
    mask = tv_tensors.Mask(torch.randint(0, 2, (1, 8, 8), dtype=torch.uint8))
    assert torch.equal(StainJitter(0.5)(mask), mask)


def test_stain_jitter_is_enabled_by_the_settings():
    names = [type(step).__name__ for step in training_transform(ImageSettings(stain=0.1)).transforms]
    assert "StainJitter" in names
    assert "StainJitter" not in [type(step).__name__ for step in training_transform(ImageSettings()).transforms]
