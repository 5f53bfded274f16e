"""Glass is a white field that leaves the image; a lumen is one that tissue encloses."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from histolumen.tissue.glass import find_glass, open_fields, white_fields

REAL = Path(__file__).parents[3] / "shared" / "data" / "glas"
TISSUE, GLASS = (170, 90, 150), (248, 247, 249)


def picture(height: int = 300, width: int = 400) -> np.ndarray:
    """Stained tissue with texture."""
    noise = np.random.default_rng(0).normal(0, 20, (height, width, 1))
    return np.clip(np.array(TISSUE) + noise, 0, 255).astype(np.uint8)


def test_a_field_beside_the_tissue_is_glass_and_a_lumen_is_not():
    image = picture()
    image[:, :120] = GLASS
    image[140:200, 240:320] = GLASS
    glass = find_glass(image)
    assert glass[10:-10, :110].all()
    assert not glass[:, 130:].any()
    assert white_fields(image)[150:190, 250:310].all()


def test_a_lumen_that_the_border_cuts_once_is_not_glass():
    image = picture()
    image[:70, 150:230] = GLASS
    assert not find_glass(image).any()


def test_tissue_alone_has_no_glass_and_glass_alone_is_nothing_else():
    assert not find_glass(picture()).any()
    assert find_glass(np.full((64, 80, 3), 250, np.uint8)).all()


@pytest.mark.parametrize("colour", [(250, 215, 235), (205, 205, 205), (20, 20, 20)])
def test_pale_stain_grey_and_black_are_not_glass(colour):
    image = picture()
    image[:, :200] = colour
    assert not find_glass(image).any()


@given(st.integers(1, 3), st.integers(20, 900), st.integers(20, 900))
def test_the_answer_has_the_size_of_the_image(repeat, height, width):
    image = np.full((height, width, 3), 250, np.uint8)
    assert find_glass(image).shape == (height, width)
    assert find_glass(image.repeat(repeat, 0)).all()


def test_what_counts_is_the_share_of_the_border_not_the_resolution():
    image = picture()
    image[:, :120] = GLASS
    large = np.asarray(Image.fromarray(image).resize((1600, 1200)))
    assert abs(find_glass(large).mean() - find_glass(image).mean()) < 0.01


@given(st.integers(0, 2**16 - 1))
def test_open_fields_are_whole_fields_of_the_mask(bits):
    white = np.array([bits >> k & 1 for k in range(16)], bool).reshape(4, 4).repeat(3, 0).repeat(3, 1)
    glass = open_fields(white)
    assert not (glass & ~white).any()
    assert (open_fields(glass) == glass).all()


@pytest.mark.skipif(not REAL.is_dir(), reason="the GlaS images are not in ../shared/data/glas")
@pytest.mark.parametrize(("name", "share"), [("67", 0.62), ("47", 0.29), ("85", 0.23), ("2", 0.0), ("25", 0.0)])
def test_fields_beside_real_tissue(name, share):
    """Shares of the image that are empty by eye; image 25 has large lumens."""
    image = np.asarray(Image.open(REAL / "images" / f"train_{name}.webp").convert("RGB"))
    assert abs(find_glass(image).mean() - share) < 0.02
