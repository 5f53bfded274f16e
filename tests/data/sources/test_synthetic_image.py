"""In synthetic images the class is visible in the glands and nowhere else."""

import numpy as np
import pytest
from scipy import ndimage

from histolumen.data.sources.synthetic_image import KINDS, Sample, make_sample
from histolumen.metrics import count_pixels
from histolumen.tissue.glass import find_glass

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


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_the_edge_of_a_section_there_is_bare_glass_and_no_gland(kind):
    for seed in range(8):
        whole, cut = make_sample(kind, 256, seed), make_sample(kind, 256, seed, glass=1)
        glass = (whole.image != cut.image).any(-1) & (cut.image.min(-1) > 200)
        assert 0.1 < glass.mean() < 0.45
        assert cut.mask[glass].mean() < 0.02  # the blurred pixels of the edge alone
        inside = ndimage.binary_erosion(~glass, iterations=3)
        assert (whole.mask == cut.mask)[inside].mean() > 0.98


def test_without_glass_the_images_are_those_of_the_seed():
    assert (make_sample("benign", 96, 7, glass=0).image == make_sample("benign", 96, 7).image).all()


def test_the_glass_of_synthetic_sections_is_found_and_no_lumen_is_taken_for_it():
    samples = [make_sample(KINDS[seed % 2], 256, seed, glass=1) for seed in range(20)]
    found = [find_glass(sample.image) for sample in samples]
    assert sum(glass.mean() > 0.1 for glass in found) >= 19
    assert np.mean([glass[sample.mask].mean() for glass, sample in zip(found, samples, strict=True)]) < 0.02
    assert not any(find_glass(make_sample(KINDS[seed % 2], 256, seed).image).any() for seed in range(20))
