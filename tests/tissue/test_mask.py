import numpy as np
import pytest
from PIL import Image
from slide_files import GLASS, PINK, write_slide

from histolumen.slides.reader import Region, open_slide
from histolumen.tissue.mask import Tissue, find_tissue, otsu_threshold, tissue_mask


def picture(height: int = 100, width: int = 120) -> np.ndarray:
    """Pink tissue with a small and a large hole, a speck of dirt, and a black pen mark, on glass."""
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:] = GLASS
    pixels[20:80, 20:90] = PINK
    pixels[30:34, 30:34] = GLASS
    pixels[50:70, 50:70] = GLASS
    pixels[5:7, 5:7] = PINK
    pixels[90:98, 100:118] = (12, 0, 3)
    return pixels


def test_specks_are_removed_and_small_holes_filled():
    mask = tissue_mask(picture())
    assert mask[32, 32]  # a small hole is filled
    assert not mask[60, 60]  # a large one is not tissue
    assert not mask[6, 6]
    assert not mask[94, 110]
    assert mask.mean() == pytest.approx((60 * 70 - 400) / 12000, abs=0.02)


def test_what_counts_as_a_lumen_is_enclosed_and_not_too_large():
    assert tissue_mask(picture(), largest_lumen=450)[60, 60]
    assert not tissue_mask(picture(), largest_lumen=350)[60, 60]
    assert not tissue_mask(picture(), largest_lumen=10**6)[10, 10]  # the glass around the tissue


@pytest.mark.parametrize("colour", [GLASS, (255, 255, 255), (0, 0, 0), (250, 247, 246)])
def test_no_tissue_is_found_on_glass(colour):
    noise = np.random.default_rng(0).integers(-2, 3, (80, 80, 3))
    assert not tissue_mask((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).any()


def test_a_slide_full_of_tissue_is_tissue():
    noise = np.random.default_rng(0).integers(-25, 26, (80, 80, 1))
    assert tissue_mask((np.array(PINK) + noise).astype(np.uint8)).mean() > 0.99


def test_otsu_separates_two_groups():
    values = np.concatenate([np.full(700, 0.1), np.full(300, 0.6)])
    assert 0.1 < otsu_threshold(values) <= 0.6


def test_shares_of_regions():
    mask = np.zeros((10, 10), bool)
    mask[:, 5:] = True
    tissue = Tissue(np.zeros((10, 10, 3), np.uint8), mask, 32)
    assert tissue.share_of(Region(128, 0, 64, 320)) == pytest.approx(0.5)
    assert tissue.share_of(Region(-1000, 0, 64, 64)) == 0
    soft = tissue.soft(np.array([16.0, 144.0, 300.0, 400.0]), np.array([16.0, -5.0]))
    assert soft[0].tolist() == [0, 0, 1, 0]  # none beside the mask and none outside the slide
    assert not soft[1].any()
    uniform = tissue.soft(np.array([-5.0, 250.0, 300.0]), np.array([16.0, 330.0]))  # only tissue near by
    assert uniform.tolist() == [[0, 1, 1], [0, 0, 0]]


def test_the_preview_is_written(tmp_path):
    big = np.kron(picture(), np.ones((8, 8, 1), np.uint8))
    with open_slide(write_slide(tmp_path / "a.tif", big)) as slide:
        tissue = find_tissue(slide, 8)
    assert tissue.share == pytest.approx((60 * 70 - 400) / 12000, abs=0.03)
    tissue.save_preview(tmp_path / "tissue.png")
    assert max(Image.open(tmp_path / "tissue.png").size) > 500
