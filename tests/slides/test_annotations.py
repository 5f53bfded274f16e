"""ASAP outlines: geometry, repairs, errors, and masks compared with shapely."""

from pathlib import Path

import numpy as np
import pytest
import shapely
from outline_files import SQUARE, write_outlines

from histolumen.errors import SlideError
from histolumen.slides.annotations import read_outlines, tumour_mask

REAL = Path(__file__).parents[3] / "shared" / "data" / "slides"
SIZE = (1000, 800)
INNER = [(20, 20), (60, 20), (60, 60), (20, 60)]
BOW_TIE = [(0, 0), (100, 100), (100, 0), (0, 100)]


def read(tmp_path, *annotations, size=SIZE):
    return read_outlines(write_outlines(tmp_path / "slide.xml", *annotations), size)


@pytest.mark.parametrize(("tumour", "hole"), [("_0", "_2"), ("_1", "_2"), ("Tumor", "Exclusion")])
def test_tumour_minus_holes(tmp_path, tumour, hole):
    outlines = read(tmp_path, (tumour, SQUARE), (hole, INNER))
    assert outlines.notes == []
    assert outlines.tumour.equals(shapely.Polygon(SQUARE, [INNER]))


def test_the_position_of_a_hole_in_the_file_does_not_matter(tmp_path):
    assert read(tmp_path, ("_2", INNER), ("_0", SQUARE)).tumour.area == 100**2 - 40**2


def test_overlapping_tumours_are_one(tmp_path):
    moved = [(x + 50, y) for x, y in SQUARE]
    assert read(tmp_path, ("_0", SQUARE), ("_1", moved)).tumour.equals(shapely.box(0, 0, 150, 100))


def test_a_closed_outline_is_the_same_as_an_open_one(tmp_path):
    assert read(tmp_path, ("_0", [*SQUARE, SQUARE[0]])).tumour.equals(shapely.box(0, 0, 100, 100))


def test_a_self_crossing_outline_is_repaired_with_a_note(tmp_path):
    outlines = read(tmp_path, ("_0", BOW_TIE))
    assert outlines.tumour.is_valid
    assert outlines.tumour.area == 5000
    assert len(outlines.notes) == 1
    assert "crosses" in outlines.notes[0]
    assert "annotation 'outline 0'" in outlines.notes[0]


def test_a_spike_without_area_is_removed(tmp_path):
    outlines = read(tmp_path, ("_0", [(0, 0), (100, 0), (200, 0), (100, 0), (100, 100), (0, 100)]))
    assert outlines.tumour.equals(shapely.box(0, 0, 100, 100))


def test_annotations_without_area_are_left_out_with_a_note(tmp_path):
    line = [(0, 0), (10, 10), (20, 20)]
    outlines = read(tmp_path, ("_0", SQUARE), ("_0", [(5, 5), (6, 6), (5, 5)]), ("_0", []), ("_2", line))
    assert outlines.tumour.equals(shapely.box(0, 0, 100, 100))
    assert ["left out" in note for note in outlines.notes].count(True) == 3


def test_outlines_beyond_the_slide_are_clipped_with_a_note(tmp_path):
    outlines = read(tmp_path, ("_0", [(x - 50, y) for x, y in SQUARE]))
    assert outlines.tumour.equals(shapely.box(0, 0, 50, 100))
    assert "clipped" in outlines.notes[0]


@pytest.mark.parametrize("shift", [(2000, 0), (-100, 0)])  # far away, and touching the edge from outside
def test_an_outline_outside_the_slide_is_refused(tmp_path, shift):
    away = [(x + shift[0], y + shift[1]) for x, y in SQUARE]
    with pytest.raises(SlideError, match=r"'outline 1': lies wholly outside its slide of 1000 x 800.*another slide"):
        read(tmp_path, ("_0", SQUARE), ("_0", away))


def test_an_unknown_group_is_named(tmp_path):
    with pytest.raises(SlideError, match=r"slide\.xml, annotation 'outline 0': unknown group 'metastases'; tumour is"):
        read(tmp_path, ("metastases", SQUARE))


@pytest.mark.parametrize("annotations", [[("_2", SQUARE)], [("_0", [(0, 0), (1, 1)])], [("_0", INNER), ("_2", SQUARE)]])
def test_outlines_without_tumour_are_refused(tmp_path, annotations):
    with pytest.raises(SlideError, match="outlines no tumour"):
        read(tmp_path, *annotations)


@pytest.mark.parametrize("value", ["12,5", "", "nan", "inf", "left"])
def test_coordinates_must_be_numbers(tmp_path, value):
    path = write_outlines(tmp_path / "slide.xml", ("_0", SQUARE))
    path.write_text(path.read_text().replace('X="100"', f'X="{value}"', 1))
    with pytest.raises(SlideError, match=f"coordinate '{value}' is not a number"):
        read_outlines(path, SIZE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<ASAP_Annotations><Annotations>", "not well-formed"),
        ("", "not well-formed"),
        ("<ASAP_Annotations><Annotations/></ASAP_Annotations>", "contains no annotation"),
        ("<?xml version='1.0' encoding='klingon'?><a/>", "not well-formed"),
        ("<!DOCTYPE a [<!ENTITY b 'c'><!ENTITY d '&b;&b;&b;'>]><a>&d;</a>", "document type or entities"),
        ("<!DOCTYPE a SYSTEM 'file:///etc/hostname'><a/>", "document type or entities"),
    ],
)
def test_files_without_outlines_are_refused(tmp_path, content, message):
    path = tmp_path / "slide.xml"
    path.write_text(content)
    with pytest.raises(SlideError, match=rf"slide\.xml: .*{message}.*; "):
        read_outlines(path, SIZE)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SlideError, match="cannot be read"):
        read_outlines(tmp_path / "none.xml", SIZE)


def reference_mask(tumour, left, top, side):
    """The mask from a test of every pixel centre."""
    y, x = np.mgrid[top : top + side, left : left + side] + 0.5
    return shapely.contains_xy(tumour, x, y)


@pytest.mark.parametrize("side", [64, 75])  # a multiple of the squares that are filled at once, and not
@pytest.mark.parametrize("place", [(0, 0), (40, 40), (70, 60), (300, 300), (97, 3)])
def test_a_pixel_is_tumour_if_its_centre_is_inside(tmp_path, place, side):
    ring = read(tmp_path, ("_0", SQUARE), ("_2", [(30, 30), (71, 35), (50, 90)])).tumour
    assert (tumour_mask(ring, *place, side) == reference_mask(ring, *place, side)).all()


def test_a_mask_is_full_inside_and_empty_outside(tmp_path):
    tumour = read(tmp_path, ("_0", SQUARE)).tumour
    assert tumour_mask(tumour, 0, 0, 100).all()
    assert not tumour_mask(tumour, 100, 0, 100).any()
    assert tumour_mask(tumour, 50, 50, 100).sum() == 50**2


@pytest.mark.skipif(not REAL.is_dir(), reason="real outlines are not at hand")
@pytest.mark.parametrize("name", ["tumor_073", "tumor_081", "tumor_093"])
def test_real_outlines_give_no_notes_and_their_masks_add_up(name):
    tumour, notes = read_outlines(REAL / f"{name}.xml", (98_304, 98_304))
    assert notes == []
    assert tumour.is_valid
    shapely.prepare(tumour)
    left, top, right, bottom = (int(value) // 512 for value in tumour.bounds)
    places = [(x * 512, y * 512) for y in range(top, bottom + 1) for x in range(left, right + 1)]
    masks = {place: tumour_mask(tumour, *place, 512) for place in places}
    assert sum(mask.sum() for mask in masks.values()) == pytest.approx(tumour.area, rel=1e-3)
    crossed = [place for place, mask in masks.items() if 0 < mask.mean() < 1]
    for place in crossed[::8]:
        assert (masks[place] == reference_mask(tumour, *place, 512)).all()
