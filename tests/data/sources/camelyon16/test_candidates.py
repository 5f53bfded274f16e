"""Candidate patches of a slide, pairing of slides and annotations, and balanced sampling."""

import json
import os
from collections import Counter

import numpy as np
import pytest
from outline_files import rectangle, write_outlines
from slide_files import GLASS, speckled, write_mosaic_slide, write_slide

import histolumen.data.sources.camelyon16.candidates as sampling
from histolumen.data.sources.camelyon16.balance import choose, split_slides
from histolumen.data.sources.camelyon16.candidates import count_patches
from histolumen.data.sources.camelyon16.outline_scan import scan_outlines
from histolumen.data.sources.camelyon16.pairing import Source, find_sources
from histolumen.data.sources.camelyon16.published_list import METASTATIC, NORMAL, published_slides
from histolumen.errors import DataError, SlideError
from histolumen.slides.annotations import read_outlines
from histolumen.slides.reader import open_slide
from histolumen.tissue.mask import find_tissue


def strip(width: int) -> np.ndarray:
    """A patch of glass with a strip of tissue."""
    tile = np.full((512, 512, 3), GLASS, np.uint8)
    tile[:, :width] = speckled(width, 512)
    return tile


def offered(tmp_path, pixels, *annotations):
    """Candidate patches of a slide with these pixels; a normal slide if there are no annotations."""
    slide = write_slide(tmp_path / "a.tif", pixels)
    outlines = write_outlines(tmp_path / "a.xml", *annotations) if annotations else None
    return count_patches(Source("a", slide, outlines, test=False), tmp_path / "counts", tmp_path / "tissue").places


def test_normal_patches_are_a_grid_wholly_inside_the_slide(tmp_path):
    places = offered(tmp_path, speckled(1600, 1100))
    assert places == [(0, 0), (512, 0), (1024, 0), (0, 512), (512, 512), (1024, 512)]


def test_a_slide_smaller_than_a_patch_has_no_candidates(tmp_path):
    assert offered(tmp_path, speckled(500, 1100)) == []


def test_a_patch_needs_a_tenth_of_tissue(tmp_path):
    tiles = [strip(width) for width in (0, 32, 64, 256, 512)]  # 0, 6, 12.5, 50 and 100 %
    assert offered(tmp_path, np.concatenate(tiles, axis=1)) == [(1024, 0), (1536, 0), (2048, 0)]


@pytest.mark.parametrize(("rows", "enough"), [(102, False), (103, True)])  # 19.9 and 20.1 % of 512
def test_a_metastatic_patch_needs_a_fifth_of_tumour(tmp_path, rows, enough):
    tumour = ("_0", rectangle(512, 0, 512, rows))
    assert [top for _, top in offered(tmp_path, speckled(1536, 512), tumour)] == ([0] if enough else [])


def test_a_row_begins_half_a_patch_above_the_tumour_where_a_fifth_is_tumour_and_goes_on_by_patches(tmp_path):
    tumour = ("_0", rectangle(1000, 356, 1200, 600))
    first, second = 1000 - 512 + 205, 1000 - 512 + 153  # 205 x 256 and 153 x 344 pixels of 512 x 512 are above 20 %
    assert offered(tmp_path, speckled(3072, 1600), tumour) == [
        (first, 100), (first + 512, 100), (first + 1024, 100),
        (second, 612), (second + 512, 612), (second + 1024, 612),
    ]  # fmt: skip


def test_every_region_has_its_own_rows(tmp_path):
    tumours = ("_0", rectangle(600, 600, 300, 300)), ("_0", rectangle(2000, 700, 300, 300))
    assert [top for _, top in offered(tmp_path, speckled(3072, 1600), *tumours)] == [344, 444]


def test_holes_do_not_count_as_tumour(tmp_path):
    tumour, hole = ("_0", rectangle(0, 0, 1024, 512)), ("_2", rectangle(0, 0, 512, 512))
    assert offered(tmp_path, speckled(1024, 512), tumour, hole) == [(103, 0)]


def test_tumour_on_glass_is_no_candidate(tmp_path):
    pixels = np.concatenate([strip(0), strip(0), strip(512)], axis=1)
    places = offered(tmp_path, pixels, ("_0", rectangle(0, 0, 1536, 512)))
    assert len(places) == 1
    assert places[0][0] == pytest.approx(512 + 52, abs=32)  # a tenth of it is tissue, on the small picture


def test_patches_near_the_rim_lie_inside_the_slide(tmp_path):
    places = offered(tmp_path, speckled(1300, 1300), ("_0", rectangle(0, 0, 1300, 1300)))
    assert places == [(0, 0), (512, 0), (0, 512), (512, 512)]


@pytest.mark.parametrize("name", ["tumor_073", "tumor_081", "tumor_093"])
def test_the_scan_finds_the_published_patches(real_outlines, name):
    """Where outlines are drawn in another way, a row may begin some pixels off; nothing else differs."""
    size = (200_000, 200_000)
    found = scan_outlines(read_outlines(real_outlines / f"{name}.xml", size).tumour, size, lambda place: True)
    published = [patch.place for patch in published_slides()[name].patches]

    def near(place, others):
        return any(place[1] == top and abs(place[0] - left) <= 4 for left, top in others)

    assert all(near(place, found) for place in published)
    few = [place for place, share in found.items() if share <= 0.5]
    assert few
    assert all(near(place, published) for place in few)  # none of them is thinned


@pytest.fixture
def source(tmp_path):
    slide = write_slide(tmp_path / "a.tif", speckled(1024, 1024))
    return Source("a", slide, write_outlines(tmp_path / "a.xml", ("_0", rectangle(0, 0, 512, 512))), test=False)


def test_a_count_is_stored_and_reused(tmp_path, source, monkeypatch):
    first = count_patches(source, tmp_path / "counts", tmp_path / "tissue")
    assert json.loads((tmp_path / "counts" / "a.json").read_text())["places"] == [[0, 0]]
    assert (tmp_path / "tissue" / "a.png").is_file()
    monkeypatch.setattr(sampling, "open_slide", None)  # must not be needed
    assert count_patches(source, tmp_path / "counts", tmp_path / "tissue") == first


def touch(source, tmp_path):
    os.utime(source.slide, ns=(1, 1))


def new_outlines(source, tmp_path):
    write_outlines(source.outlines, ("_0", rectangle(0, 0, 1024, 512)))


def damage_count(source, tmp_path):
    (tmp_path / "counts" / "a.json").write_text('{"fingerprint": 3')


def lose_preview(source, tmp_path):
    (tmp_path / "tissue" / "a.png").unlink()


@pytest.mark.parametrize("change", [touch, new_outlines, damage_count, lose_preview])
def test_an_outdated_or_damaged_count_is_not_used(tmp_path, source, monkeypatch, change):
    count_patches(source, tmp_path / "counts", tmp_path / "tissue")
    change(source, tmp_path)
    opened = []
    monkeypatch.setattr(sampling, "open_slide", lambda path: opened.append(path) or open_slide(path))
    again = count_patches(source, tmp_path / "counts", tmp_path / "tissue")
    assert opened == [source.slide]
    assert again.places == ([(0, 0), (512, 0)] if change is new_outlines else [(0, 0)])
    assert (tmp_path / "tissue" / "a.png").is_file()


def test_a_missing_slide_is_an_error(tmp_path):
    with pytest.raises(SlideError, match=r"gone\.tif: cannot be read"):
        count_patches(Source("gone", tmp_path / "gone.tif", None, test=False), tmp_path, tmp_path)


def test_the_mosaic_slide_has_the_given_tiles_and_levels(tmp_path):
    """Other tests rely on this slide writer."""
    layout = np.zeros((8, 4), int)
    layout[2:, 1:] = 1
    tiles = [strip(0), strip(512)]
    with open_slide(write_mosaic_slide(tmp_path / "m.tif", tiles, layout, mpp=0.5)) as slide:
        assert (slide.width, slide.height, slide.mpp) == (2048, 4096, 0.5)
        for row, column in ((0, 0), (1, 3), (2, 1), (7, 3)):
            assert (slide._pixels(0, column * 512, row * 512, 512, 512) == tiles[layout[row, column]]).all()
        assert find_tissue(slide).share == pytest.approx(layout.mean(), abs=0.01)


# --- pairing


def touched(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_official_names_define_class_and_split(tmp_path):
    slides = touched(
        tmp_path / "slides", "normal/normal_001.tif", "tumor/Tumor_002.TIF", "test_001.tif", "test_003.tif", "mine.svs",
        "yours.ndpi", "notes.txt", "._normal_001.tif",
    )  # fmt: skip
    outlines = touched(tmp_path / "xml", "tumor_002.xml", "test_001.xml", "yours.xml")
    found = find_sources(slides, outlines)
    assert {(source.name, source.label, source.test) for source in found.sources} == {
        ("normal_001", NORMAL, False), ("Tumor_002", METASTATIC, False), ("test_001", METASTATIC, True),
        ("test_003", NORMAL, True), ("mine", NORMAL, False), ("yours", METASTATIC, False),
    }  # fmt: skip
    assert (found.failures, found.notes) == ({}, [])


def test_unusable_names_are_reported_and_the_other_slides_kept(tmp_path):
    slides = touched(tmp_path / "slides", "tumor_001.tif", "normal_001.tif", "a.tif", "a.svs", "b.tif", "c.tif")
    outlines = touched(tmp_path / "xml", "normal_001.xml", "tumor_009.xml", "b.xml", "more/B.xml")
    found = find_sources(slides, outlines)
    assert [source.name for source in found.sources] == ["c"]
    assert found.failures.keys() == {"tumor_001", "normal_001", "a", "b"}
    assert "put tumor_001.xml into" in found.failures["tumor_001"]
    assert "normal slide with outlines" in found.failures["normal_001"]
    assert "two slides with the same name" in found.failures["a"]
    assert "two annotations with the same name" in found.failures["b"]
    assert len(found.notes) == 1
    assert "tumor_009.xml" in found.notes[0]


def test_a_test_slide_is_normal_only_if_the_published_list_says_so(tmp_path):
    slides = touched(
        tmp_path / "slides", "test_001.tif", "test_003.tif", "test_005.tif", "test_049.tif", "TEST_114.tif",
        "test_200.tif", "test_201.tif",
    )  # fmt: skip
    outlines = touched(tmp_path / "xml", "test_005.xml", "test_114.xml", "test_201.xml")
    found = find_sources(slides, outlines)
    assert {(source.name, source.label) for source in found.sources} == {
        ("test_003", NORMAL), ("test_201", METASTATIC)
    }  # fmt: skip
    assert found.failures.keys() == {"test_001", "test_005", "test_049", "TEST_114", "test_200"}
    assert "put test_001.xml into" in found.failures["test_001"]
    assert "normal slide with outlines" in found.failures["test_005"]
    assert "not reliably outlined" in found.failures["TEST_114"]
    for name in ("test_049", "test_200"):
        assert "not in the published list may be normal or not" in found.failures[name]


def test_folders_must_exist_and_contain_slides(tmp_path):
    slides = touched(tmp_path / "slides", "normal_001.tif")
    with pytest.raises(DataError, match="no such folder"):
        find_sources(tmp_path / "none", slides)
    with pytest.raises(DataError, match="no such folder"):
        find_sources(slides, tmp_path / "none")
    with pytest.raises(DataError, match="no slide in this folder"):
        find_sources(touched(tmp_path / "xml", "tumor_001.xml"), tmp_path / "xml")


# --- balanced sampling


def slide_named(tmp_path, name, metastatic, test=False):
    return Source(name, tmp_path / f"{name}.tif", tmp_path / f"{name}.xml" if metastatic else None, test)


def grid(count):
    return [(512 * number, 0) for number in range(count)]


@pytest.fixture
def many(tmp_path):
    """Eight slides of each class and four test slides, with their candidate patches."""
    sources = [slide_named(tmp_path, f"{kind}_{n}", kind == "tumor") for kind in ("normal", "tumor") for n in range(8)]
    sources += [slide_named(tmp_path, f"test_{n}", n < 2, test=True) for n in range(4)]
    offers = {source.name: grid(3 + 5 * number) for number, source in enumerate(sources)}
    return sources, offers


def test_slides_are_stratified_by_class_and_official_test_slides_are_the_test_split(many):
    sources, _ = many
    splits = split_slides(sources, 0.25, seed=0)
    assert Counter((source.label, splits[source.name]) for source in sources) == {
        (NORMAL, "train"): 6, (METASTATIC, "train"): 6, (NORMAL, "valid"): 2, (METASTATIC, "valid"): 2,
        (NORMAL, "test"): 2, (METASTATIC, "test"): 2,
    }  # fmt: skip
    assert splits == split_slides(sources, 0.25, seed=0)
    assert splits != split_slides(sources, 0.25, seed=1)


@pytest.mark.parametrize("per_slide", [None, 4])
def test_every_split_is_balanced_and_as_large_as_possible(many, per_slide):
    sources, offers = many
    splits = split_slides(sources, 0.25, seed=0)
    chosen = choose(sources, offers, splits, per_slide, seed=0)
    for split in ("train", "valid", "test"):
        taken, possible = Counter(), Counter()
        for source in sources:
            if splits[source.name] == split:
                limit = per_slide if per_slide and source.label == METASTATIC else 10_000
                taken[source.label] += len(chosen[source.name])
                possible[source.label] += min(limit, len(offers[source.name]))
                assert len(chosen[source.name]) <= limit
        assert taken[NORMAL] == taken[METASTATIC] == min(possible.values()) > 0


def test_chosen_patches_are_candidates_in_their_order(many):
    sources, offers = many
    for name, places in choose(sources, offers, split_slides(sources, 0.25, 0), None, seed=0).items():
        assert places == [place for place in offers[name] if place in set(places)]


def test_no_slide_dominates(tmp_path):
    sources = [slide_named(tmp_path, name, name == "t") for name in ("a", "b", "c", "t")]
    offers = {"a": grid(1000), "b": grid(100), "c": grid(3), "t": grid(30)}
    chosen = choose(sources, offers, dict.fromkeys("abct", "train"), None, seed=0)
    taken = {name: len(places) for name, places in chosen.items()}
    assert taken["c"] == 3
    assert sorted([taken["a"], taken["b"]]) == [13, 14]
    assert taken["t"] == 30


def test_another_slide_does_not_reshuffle_the_others(tmp_path):
    sources = [slide_named(tmp_path, name, name == "t") for name in ("a", "b", "t")]
    offers = {"a": grid(50), "b": grid(50), "t": grid(20)}
    splits = dict.fromkeys("abtc", "train")
    before = choose(sources, offers, splits, None, seed=0)
    after = choose([*sources, slide_named(tmp_path, "c", False)], offers | {"c": grid(50)}, splits, None, seed=0)
    for name in "ab":
        assert set(after[name]) < set(before[name])
    assert after["t"] == before["t"]


def test_the_choice_depends_on_the_seed(tmp_path):
    sources = [slide_named(tmp_path, name, name == "t") for name in ("a", "t")]
    offers, splits = {"a": grid(50), "t": grid(20)}, dict.fromkeys("at", "train")
    assert choose(sources, offers, splits, None, seed=0) == choose(sources, offers, splits, None, seed=0)
    assert choose(sources, offers, splits, None, seed=0) != choose(sources, offers, splits, None, seed=1)


def test_every_slide_has_its_own_order_and_any_slide_may_give_the_odd_patch(tmp_path):
    sources = [slide_named(tmp_path, name, name == "t") for name in ("a", "b", "t")]
    offers, splits = {"a": grid(50), "b": grid(50), "t": grid(21)}, dict.fromkeys("abt", "train")
    draws = [choose(sources, offers, splits, None, seed) for seed in range(12)]
    assert all(chosen["a"] != chosen["b"] for chosen in draws)
    assert all(len(set(chosen["a"]) ^ set(chosen["b"])) > 1 for chosen in draws)
    assert {len(chosen["a"]) for chosen in draws} == {10, 11}


def test_a_split_with_one_class_stays_empty(tmp_path):
    assert choose([slide_named(tmp_path, "a", False)], {"a": grid(9)}, {"a": "train"}, None, 0) == {"a": []}
