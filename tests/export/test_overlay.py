"""Overlays keep the colours of the foreground, and work for every mask and size."""

import numpy as np
import pytest

from histolumen.export import overlay
from histolumen.export.overlay import draw_comparison, draw_overlay, draw_red, draw_sheet

GREEN, BLUE, ORANGE = (0, 158, 115), (0, 114, 178), (230, 159, 0)


@pytest.fixture
def image() -> np.ndarray:
    """Tissue of many colours, 40 x 60 pixels."""
    return np.random.default_rng(0).integers(60, 220, (40, 60, 3), np.uint8)


@pytest.fixture
def mask() -> np.ndarray:
    """A block in the middle."""
    block = np.zeros((40, 60), bool)
    block[10:30, 20:40] = True
    return block


def test_foreground_pixels_keep_their_colour_within_a_green_outline(image, mask):
    picture = np.asarray(draw_overlay(image, mask))
    assert picture.shape == image.shape
    assert (picture[11:29, 21:39] == image[11:29, 21:39]).all()
    outline = mask.copy()
    outline[11:29, 21:39] = False
    assert (picture[outline] == GREEN).all()


@pytest.mark.parametrize("brightness", [0, 30, 80, 99, 101, 130, 180, 225, 245, 255])
def test_inside_and_outside_differ_at_any_brightness(mask, brightness):
    """On pale images the background was as pale as the foreground, which is why it is dimmed there."""
    image = np.full((40, 60, 3), brightness, np.uint8)
    picture = np.asarray(draw_overlay(image, mask)).astype(int)
    assert abs(picture[20, 30] - picture[2, 2]).min() >= 40


def test_the_background_loses_its_colour(mask):
    image = np.full((40, 60, 3), (230, 120, 200), np.uint8)  # eosin
    picture = np.asarray(draw_overlay(image, mask)).astype(int)
    assert np.ptp(picture[2, 2]) < 0.3 * np.ptp(picture[20, 30])


def test_blocks_of_a_large_image_leave_no_seam(image, mask, monkeypatch):
    whole = np.asarray(draw_overlay(image, mask))
    for rows in (1, 7, 11, 39):
        monkeypatch.setattr(overlay, "_ROWS", rows)
        assert (np.asarray(draw_overlay(image, mask)) == whole).all()


def test_the_background_has_less_contrast_and_the_outline_has_a_white_halo(image, mask):
    picture = np.asarray(draw_overlay(image, mask)).astype(int)
    assert (picture[9, 20:40] == 255).all()
    far = np.ones_like(mask)
    far[8:32, 18:42] = False
    spread = picture[far].std(), image[far].std()
    assert spread[0] < 0.6 * spread[1]


def test_the_input_image_is_not_modified(image, mask):
    before = image.copy()
    draw_comparison(image, mask, ~mask, "caption")
    assert (image == before).all()


def test_a_full_mask_shows_the_image_unchanged(image):
    assert (np.asarray(draw_overlay(image, np.ones((40, 60), bool))) == image).all()


def test_an_empty_mask_shows_no_outline(image):
    picture = np.asarray(draw_overlay(image, np.zeros((40, 60), bool)))
    assert not (picture == GREEN).all(2).any()
    assert not (picture == 255).all(2).any()


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (1, 30), (30, 1)])
def test_the_smallest_images_can_be_drawn(size, value):
    pixels, mask = np.full((*size, 3), 90, np.uint8), np.full(size, value)
    assert draw_overlay(pixels, mask).size == size[::-1]
    assert draw_overlay(pixels, mask, "benign 0.93").width == size[1]
    assert draw_comparison(pixels, mask, ~mask, "benign 0.93").width >= 3 * size[1]


def test_a_caption_is_written_below_the_image(image, mask):
    plain, captioned = draw_overlay(image, mask), draw_overlay(image, mask, "benign 0.93")
    assert captioned.width == 60
    assert captioned.height > 40
    pixels = np.asarray(captioned)
    assert (pixels[:40] == np.asarray(plain)).all()
    assert pixels[40:].min() < 128  # ink
    assert np.median(pixels[40:]) == 255  # on white


def test_a_comparison_marks_false_negatives_blue_and_false_positives_orange(image, mask):
    grey = np.full_like(image, 128)
    truth = np.roll(mask, 10, axis=1)
    row = np.asarray(draw_comparison(grey, mask, truth)).astype(int)
    gap = (row.shape[1] - 3 * 60) // 2
    assert (row[:, :60] == grey).all()
    assert (row[:, 60 + gap : 120 + gap] == np.asarray(draw_overlay(grey, mask))).all()
    errors = row[:, -60:]

    def nearest_to(pixel: np.ndarray) -> str:
        colours = {"blue": BLUE, "orange": ORANGE, "grey": (191, 191, 191)}
        return min(colours, key=lambda name: np.abs(pixel - colours[name]).sum())

    assert nearest_to(errors[20, 25]) == "orange"  # predicted only
    assert nearest_to(errors[20, 45]) == "blue"  # true only
    assert nearest_to(errors[20, 35]) == "grey"  # both
    assert nearest_to(errors[2, 2]) == "grey"  # neither


def test_a_sheet_has_its_pictures_in_reading_order(image, mask):
    shades = [draw_overlay(np.full_like(image, shade), np.ones_like(mask)) for shade in (10, 20, 30)]
    page = draw_sheet(shades, columns=2, gap=4)
    assert page.size == (60 + 4 + 60, 40 + 4 + 40)
    places = [page.getpixel(place)[0] for place in [(30, 20), (94, 20), (30, 64), (94, 64), (62, 20)]]
    assert places == [10, 20, 30, 255, 255]


def test_red_is_transparent_and_only_on_the_mask():
    image = np.full((4, 4, 3), 100, np.uint8)
    mask = np.zeros((4, 4), bool)
    mask[:2] = True
    picture = draw_red(image, mask)
    assert picture[0, 0].tolist() == [148, 68, 68]  # 0.6 of 100 and 0.4 of (220, 20, 20)
    assert (picture[2:] == image[2:]).all()
    assert (image == 100).all()
