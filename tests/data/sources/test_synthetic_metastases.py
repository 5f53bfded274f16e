"""Synthetic metastases are a fair exam: the class shows in the islands, and nowhere else."""

import numpy as np
import pytest
from scipy import ndimage

from histolumen.data.image import read_image, read_mask
from histolumen.data.sources.synthetic import write_synthetic_set
from histolumen.data.sources.synthetic_canvas import Sample
from histolumen.data.sources.synthetic_metastases import KINDS, make_sample
from histolumen.metrics import count_pixels

SEEDS = range(24)


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Sample, Sample]]:
    """The normal and the metastatic image of each seed."""
    return [(make_sample("normal", 128, seed), make_sample("metastatic", 128, seed)) for seed in SEEDS]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes(kind):
    first, again, other = (make_sample(kind, 96, seed) for seed in (7, 7, 8))
    assert (first.image.shape, first.image.dtype, first.mask.dtype) == ((96, 96, 3), np.uint8, bool)
    assert (first.image == again.image).all()
    assert (first.mask == again.mask).all()
    assert (first.image != other.image).any()


def test_islands_cover_20_to_100_percent_and_normal_images_have_none(pairs):
    shares = np.array([make_sample("metastatic", 64, seed).mask.mean() for seed in range(100)])
    assert not any(normal.mask.any() for normal, _ in pairs)
    assert shares.min() >= 0.2
    assert shares.max() == 1
    assert np.median(shares) < 0.5  # as in Camelyon16, more patches with little than with much


def test_both_kinds_of_one_seed_agree_in_every_pixel_outside_the_islands(pairs):
    compared = 0
    for normal, metastatic in pairs:
        outside = ~ndimage.binary_dilation(metastatic.mask, np.ones((3, 3)), iterations=3)
        compared += outside.sum()
        assert (normal.image[outside] == metastatic.image[outside]).all()
    assert compared > 24 * 128 * 128 / 4


def test_islands_look_different_from_the_tissue_they_replace(pairs):
    """Nuclei are larger: less of the image varies from pixel to pixel, so the class can be learnt."""
    for normal, metastatic in pairs:
        inside = ndimage.binary_erosion(metastatic.mask, iterations=2)
        rough = [
            np.abs(np.diff(image.mean(2), axis=0))[inside[1:]].mean() for image in (normal.image, metastatic.image)
        ]
        assert rough[1] < rough[0]


def test_colour_alone_does_not_give_the_class_away(pairs):
    """Stain varies more from image to image than between the classes."""
    normal, metastatic = (np.array([pair[kind].image.mean((0, 1)) for pair in pairs]) for kind in (0, 1))
    assert (np.abs(normal.mean(0) - metastatic.mean(0)) < normal.std(0)).all()


def test_calling_everything_tumour_scores_below_75(pairs):
    scores = [count_pixels(np.ones(pair[1].mask.shape), pair[1].mask).f1_plus for pair in pairs]
    assert 100 * np.mean(scores) < 75


def test_a_set_on_disk_has_masks_of_metastatic_images_only(tmp_path):
    manifest = write_synthetic_set(tmp_path, images=6, size=64, seed=5, kind="metastases")
    assert [row.label for row in manifest.rows] == ["normal", "metastatic"] * 3
    assert [bool(row.mask) for row in manifest.rows] == [False, True] * 3
    assert len(list((tmp_path / "masks").iterdir())) == 3
    assert all(manifest.knows_mask(row) for row in manifest.rows)
    sample = make_sample("metastatic", 64, 5 * 1_000_003 + 1)
    assert (read_image(manifest.image_path(manifest.rows[1])) == sample.image).all()
    assert (read_mask(tmp_path / manifest.rows[1].mask, (64, 64)) == sample.mask).all()


def test_an_image_does_not_depend_on_how_many_are_drawn(tmp_path):
    few, many = (
        write_synthetic_set(tmp_path / str(count), images=count, size=64, seed=5, kind="metastases") for count in (2, 5)
    )
    for one, other in zip(few.rows, many.rows[:2], strict=True):
        assert few.image_path(one).read_bytes() == many.image_path(other).read_bytes()
