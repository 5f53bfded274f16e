"""In synthetic images the class is visible in the glands and nowhere else."""

import numpy as np
import pytest
from scipy import ndimage

from histolumen.data.sources.synthetic_image import KINDS, Sample, make_sample
from histolumen.metrics import count_pixels

SEEDS = range(30)


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Sample, Sample]]:
    """The benign and the malignant image of thirty seeds, at the default size."""
    return [(make_sample("benign", 256, seed), make_sample("malignant", 256, seed)) for seed in SEEDS]


def test_image_and_mask_have_the_size_asked_for():
    sample = make_sample("benign", 64, 0)
    assert (sample.image.shape, sample.image.dtype) == ((64, 64, 3), np.uint8)
    assert (sample.mask.shape, sample.mask.dtype) == ((64, 64), bool)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes(kind):
    first, again, other = (make_sample(kind, 96, seed) for seed in (7, 7, 8))
    assert (first.image == again.image).all()
    assert (first.mask == again.mask).all()
    assert (first.image != other.image).any()


def test_both_kinds_of_one_seed_agree_in_every_pixel_outside_their_glands(pairs):
    for benign, malignant in pairs:
        glands = ndimage.binary_dilation(benign.mask | malignant.mask, np.ones((3, 3)), iterations=3)
        assert not glands.all()  # there is something to compare
        assert (benign.image[~glands] == malignant.image[~glands]).all()


def test_both_kinds_differ_inside_their_glands(pairs):
    """Malignant glands are darker: the class can be learnt."""
    for benign, malignant in pairs:
        both = benign.mask & malignant.mask
        assert malignant.image[both].mean() < benign.image[both].mean()


def test_calling_everything_gland_scores_below_70(pairs):
    masks = [sample.mask for pair in pairs for sample in pair]
    scores = [count_pixels(np.ones(mask.shape), mask).f1_plus for mask in masks]
    assert len(scores) == 60
    assert 100 * np.mean(scores) < 70


def test_the_share_of_gland_does_not_reveal_the_class(pairs):
    benign, malignant = (np.array([pair[kind].mask.mean() for pair in pairs]) for kind in (0, 1))
    assert benign.mean() == pytest.approx(malignant.mean(), abs=0.02)
    assert np.abs(benign - malignant).max() < 0.1  # nor in any one pair
    assert benign.min() > 0.1
    assert benign.max() < 0.8
