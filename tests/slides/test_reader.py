from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slide_files import speckled, write_slide

from histolumen.errors import SlideError
from histolumen.slides.reader import Region, Slide, find_slides, open_slide


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    with open_slide(write_slide(tmp_path_factory.mktemp("reader") / "a.tif", speckled(700, 600))) as opened:
        yield opened


def test_pixels_outside_the_slide_repeat_its_edge(slide):
    pixels = speckled(700, 600)
    assert np.array_equal(slide.read(Region(100, 50, 64, 32), (64, 32), 1), pixels[50:82, 100:164])
    beyond = slide.read(Region(-10, 590, 30, 30), (30, 30), 1)
    assert np.array_equal(beyond[:10, 10:], pixels[590:600, :20])
    assert (beyond[:, :10] == beyond[:, 10:11]).all()
    assert (beyond[10:] == beyond[9]).all()
    assert slide.read(Region(900, 900, 8, 8), (8, 8), 1).shape == (8, 8, 3)


@given(st.sampled_from([1.0, 1.37, 2.0, 3.1]), st.integers(0, 8), st.integers(0, 8))
def test_a_place_has_the_same_pixels_in_every_region(slide, scale, right, down):
    whole = slide.read(Region(0, 0, 128 * scale, 128 * scale), (128, 128), scale)
    part = slide.read(Region(8 * right * scale, 8 * down * scale, 64 * scale, 64 * scale), (64, 64), scale)
    same = whole[8 * down :][:64, 8 * right :][:, :64]
    assert np.abs(part.astype(int) - same).max() <= 1


def test_a_nearby_level_is_read_without_resampling(slide):
    assert slide.natural_scale(1.985) == pytest.approx(2, abs=1e-2)
    assert slide.natural_scale(1.37) == 1.37


def test_the_whole_slide_reduced(slide):
    small = slide.reduced(32)
    assert small.shape == (19, 22, 3)
    assert np.abs(small[:-1, :-1].astype(float).mean((0, 1)) - speckled(700, 600).mean((0, 1))).max() < 3


def test_a_slide_without_pyramid_is_read(tmp_path, slide):
    with open_slide(write_slide(tmp_path / "flat.tif", speckled(700, 600), pyramid=False)) as flat:
        assert np.abs(flat.reduced(32).astype(int) - slide.reduced(32)).max() < 25


def test_the_resolution_comes_from_the_file_or_the_user(tmp_path):
    path = write_slide(tmp_path / "a.tif", speckled(300, 300), mpp=None)
    with open_slide(path) as unstated:
        assert unstated.mpp is None
        with pytest.raises(SlideError, match="--slide-mpp"):
            unstated.require_mpp()
    with open_slide(path, mpp=0.5) as stated:
        assert stated.require_mpp() == 0.5
    with open_slide(write_slide(tmp_path / "b.tif", speckled(300, 300), mpp=0.243)) as known:
        assert known.require_mpp() == pytest.approx(0.243, abs=1e-4)


def test_files_that_are_not_slides_are_refused(tmp_path):
    with pytest.raises(SlideError, match="no such file"):
        open_slide(tmp_path / "none.svs")
    (tmp_path / "text.svs").write_text("hello")
    with pytest.raises(SlideError, match="not a slide that OpenSlide reads"):
        open_slide(tmp_path / "text.svs")


def test_a_truncated_slide_is_refused(tmp_path):
    path = write_slide(tmp_path / "a.tif", speckled(1500, 1500))
    path.write_bytes(path.read_bytes()[:-200_000])
    with pytest.raises(SlideError, match=r"truncated|not a slide"), open_slide(path) as cut:
        cut.reduced(1)


def test_slides_in_folders(tmp_path):
    for name in ("b.svs", "a.TIF", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_slides([tmp_path, tmp_path / "other.ndpi"])] == ["a.TIF", "b.svs", "other.ndpi"]


class Endless:
    """A header that states more pixels than any memory holds."""

    dimensions = (2_000_000, 2_000_000)
    level_dimensions = (dimensions,)
    level_downsamples = (1.0,)
    properties: ClassVar[dict[str, str]] = {}


def test_a_header_cannot_ask_for_more_memory_than_a_limit():
    slide = Slide(Path("endless.svs"), Endless(), 50.0)
    with pytest.raises(SlideError, match=r"endless\.svs: .* over the limit of 500,000,000"):
        slide.reduced(1.0)
