"""What one slide offers, which slides there are, and which patches are chosen."""

import json
import os
from collections import Counter

import numpy as np
import pytest
from outline_files import rectangle, write_outlines
from slide_files import GLASS, speckled, write_mosaic_slide, write_slide

import histolumen.slides.sampling as sampling
from histolumen.errors import DataError, SlideError
from histolumen.slides.balance import choose, split_slides
from histolumen.slides.pairing import METASTATIC, NORMAL, Source, find_sources
from histolumen.slides.reader import open_slide
from histolumen.slides.sampling import count_patches
from histolumen.slides.tissue import find_tissue


def strip(width: int) -> np.ndarray:
    """A patch of glass with a strip of tissue."""
    tile = np.full((512, 512, 3), GLASS, np.uint8)
    tile[:, :width] = speckled(width, 512)
    return tile


def offered(tmp_path, pixels, *annotations):
    """Patches of a slide of these pixels; normal where there are no annotations."""
    slide = write_slide(tmp_path / "a.tif", pixels)
    outlines = write_outlines(tmp_path / "a.xml", *annotations) if annotations else None
    return count_patches(Source("a", slide, outlines, test=False), tmp_path / "counts", tmp_path / "tissue").places


def test_patches_are_a_grid_wholly_inside_the_slide(tmp_path):
    places = offered(tmp_path, speckled(1600, 1100))
    assert places == [(0, 0), (512, 0), (1024, 0), (0, 512), (512, 512), (1024, 512)]


def test_a_slide_smaller_than_a_patch_offers_none(tmp_path):
    assert offered(tmp_path, speckled(500, 1100)) == []


def test_a_patch_needs_a_tenth_of_tissue(tmp_path):
    tiles = [strip(width) for width in (0, 32, 64, 256, 512)]  # 0, 6, 12.5, 50 and 100 %
    assert offered(tmp_path, np.concatenate(tiles, axis=1)) == [(1024, 0), (1536, 0), (2048, 0)]


@pytest.mark.parametrize(("rows", "enough"), [(102, False), (103, True)])  # 19.9 and 20.1 % of 512
def test_a_metastatic_patch_needs_a_fifth_of_tumour(tmp_path, rows, enough):
    tumour = ("_0", rectangle(512, 0, 512, rows))
    assert offered(tmp_path, speckled(1536, 512), tumour) == ([(512, 0)] if enough else [])


def test_holes_do_not_count_as_tumour(tmp_path):
    tumour, hole = ("_0", rectangle(0, 0, 1024, 512)), ("_2", rectangle(0, 0, 512, 420))
    assert offered(tmp_path, speckled(1024, 512), tumour, hole) == [(512, 0)]


def test_tumour_on_glass_is_not_taken(tmp_path):
    pixels = np.concatenate([strip(0), strip(512)], axis=1)
    assert offered(tmp_path, pixels, ("_0", rectangle(0, 0, 1024, 512))) == [(512, 0)]


@pytest.fixture
def source(tmp_path):
    slide = write_slide(tmp_path / "a.tif", speckled(1024, 1024))
    return Source("a", slide, write_outlines(tmp_path / "a.xml", ("_0", rectangle(0, 0, 600, 600))), test=False)


def test_a_count_is_kept_and_read_again(tmp_path, source, monkeypatch):
    first = count_patches(source, tmp_path / "counts", tmp_path / "tissue")
    assert json.loads((tmp_path / "counts" / "a.json").read_text())["places"] == [[0, 0]]
    assert (tmp_path / "tissue" / "a.png").is_file()
    monkeypatch.setattr(sampling, "open_slide", None)  # must not be needed
    assert count_patches(source, tmp_path / "counts", tmp_path / "tissue") == first


def touch(source, tmp_path):
    os.utime(source.slide, ns=(1, 1))


def new_outlines(source, tmp_path):
    write_outlines(source.outlines, ("_0", rectangle(0, 0, 1024, 600)))


def damage_count(source, tmp_path):
    (tmp_path / "counts" / "a.json").write_text('{"fingerprint": 3')


def lose_preview(source, tmp_path):
    (tmp_path / "tissue" / "a.png").unlink()


@pytest.mark.parametrize("change", [touch, new_outlines, damage_count, lose_preview])
def test_a_count_of_something_else_is_not_believed(tmp_path, source, monkeypatch, change):
    count_patches(source, tmp_path / "counts", tmp_path / "tissue")
    change(source, tmp_path)
    opened = []
    monkeypatch.setattr(sampling, "open_slide", lambda path: opened.append(path) or open_slide(path))
    again = count_patches(source, tmp_path / "counts", tmp_path / "tissue")
    assert opened == [source.slide]
    assert again.places == ([(0, 0), (512, 0)] if change is new_outlines else [(0, 0)])
    assert (tmp_path / "tissue" / "a.png").is_file()


def test_a_slide_that_is_gone_is_one_sentence(tmp_path):
    with pytest.raises(SlideError, match=r"gone\.tif: cannot be read"):
        count_patches(Source("gone", tmp_path / "gone.tif", None, test=False), tmp_path, tmp_path)


def test_the_mosaic_slide_is_what_it_claims(tmp_path):
    """The judge of other tests: equal tiles, right places, right levels."""
    layout = np.zeros((8, 4), int)
    layout[2:, 1:] = 1
    tiles = [strip(0), strip(512)]
    with open_slide(write_mosaic_slide(tmp_path / "m.tif", tiles, layout, mpp=0.5)) as slide:
        assert (slide.width, slide.height, slide.mpp) == (2048, 4096, 0.5)
        for row, column in ((0, 0), (1, 3), (2, 1), (7, 3)):
            assert (slide._pixels(0, column * 512, row * 512, 512, 512) == tiles[layout[row, column]]).all()
        assert find_tissue(slide).share == pytest.approx(layout.mean(), abs=0.01)


# which slides there are


def touched(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_names_say_what_a_slide_is(tmp_path):
    slides = touched(
        tmp_path / "slides", "normal/normal_001.tif", "tumor/Tumor_002.TIF", "test_003.tif", "test_004.tif", "mine.svs",
        "yours.ndpi", "notes.txt", "._normal_001.tif",
    )  # fmt: skip
    outlines = touched(tmp_path / "xml", "tumor_002.xml", "test_003.xml", "yours.xml")
    found = find_sources(slides, outlines)
    assert {(source.name, source.label, source.test) for source in found.sources} == {
        ("normal_001", NORMAL, False), ("Tumor_002", METASTATIC, False), ("test_003", METASTATIC, True),
        ("test_004", NORMAL, True), ("mine", NORMAL, False), ("yours", METASTATIC, False),
    }  # fmt: skip
    assert (found.failures, found.notes) == ({}, [])


def test_names_that_cannot_be_used_are_told_and_the_others_go_on(tmp_path):
    slides = touched(tmp_path / "slides", "tumor_001.tif", "normal_001.tif", "a.tif", "a.svs", "b.tif", "c.tif")
    outlines = touched(tmp_path / "xml", "normal_001.xml", "tumor_009.xml", "b.xml", "more/B.xml")
    found = find_sources(slides, outlines)
    assert [source.name for source in found.sources] == ["c"]
    assert found.failures.keys() == {"tumor_001", "normal_001", "a", "b"}
    assert "put tumor_001.xml into" in found.failures["tumor_001"]
    assert "normal slide with outlines" in found.failures["normal_001"]
    assert "two slides of one name" in found.failures["a"]
    assert "two annotations of one name" in found.failures["b"]
    assert len(found.notes) == 1
    assert "tumor_009.xml" in found.notes[0]


def test_folders_must_exist_and_hold_slides(tmp_path):
    slides = touched(tmp_path / "slides", "normal_001.tif")
    with pytest.raises(DataError, match="no such folder"):
        find_sources(tmp_path / "none", slides)
    with pytest.raises(DataError, match="no such folder"):
        find_sources(slides, tmp_path / "none")
    with pytest.raises(DataError, match="no slide in this folder"):
        find_sources(touched(tmp_path / "xml", "tumor_001.xml"), tmp_path / "xml")


# which patches are chosen


def slide_named(tmp_path, name, metastatic, test=False):
    return Source(name, tmp_path / f"{name}.tif", tmp_path / f"{name}.xml" if metastatic else None, test)


def grid(count):
    return [(512 * number, 0) for number in range(count)]


@pytest.fixture
def many(tmp_path):
    """Eight slides of each class and four test slides, with what they offer."""
    sources = [slide_named(tmp_path, f"{kind}_{n}", kind == "tumor") for kind in ("normal", "tumor") for n in range(8)]
    sources += [slide_named(tmp_path, f"test_{n}", n < 2, test=True) for n in range(4)]
    offers = {source.name: grid(3 + 5 * number) for number, source in enumerate(sources)}
    return sources, offers


def test_slides_are_divided_by_class_and_test_slides_are_the_test(many):
    sources, _ = many
    splits = split_slides(sources, 0.25, seed=0)
    assert Counter((source.label, splits[source.name]) for source in sources) == {
        (NORMAL, "train"): 6, (METASTATIC, "train"): 6, (NORMAL, "valid"): 2, (METASTATIC, "valid"): 2,
        (NORMAL, "test"): 2, (METASTATIC, "test"): 2,
    }  # fmt: skip
    assert splits == split_slides(sources, 0.25, seed=0)
    assert splits != split_slides(sources, 0.25, seed=1)


@pytest.mark.parametrize("per_slide", [None, 4])
def test_every_split_is_balanced_and_as_large_as_it_can_be(many, per_slide):
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


def test_what_is_chosen_was_offered_once_and_keeps_its_order(many):
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


def test_the_choice_follows_the_seed(tmp_path):
    sources = [slide_named(tmp_path, name, name == "t") for name in ("a", "t")]
    offers, splits = {"a": grid(50), "t": grid(20)}, dict.fromkeys("at", "train")
    assert choose(sources, offers, splits, None, seed=0) == choose(sources, offers, splits, None, seed=0)
    assert choose(sources, offers, splits, None, seed=0) != choose(sources, offers, splits, None, seed=1)


def test_every_slide_has_its_own_order_and_the_odd_patch_comes_from_any(tmp_path):
    sources = [slide_named(tmp_path, name, name == "t") for name in ("a", "b", "t")]
    offers, splits = {"a": grid(50), "b": grid(50), "t": grid(21)}, dict.fromkeys("abt", "train")
    draws = [choose(sources, offers, splits, None, seed) for seed in range(12)]
    assert all(chosen["a"] != chosen["b"] for chosen in draws)
    assert all(len(set(chosen["a"]) ^ set(chosen["b"])) > 1 for chosen in draws)
    assert {len(chosen["a"]) for chosen in draws} == {10, 11}


def test_one_class_alone_gives_nothing(tmp_path):
    assert choose([slide_named(tmp_path, "a", False)], {"a": grid(9)}, {"a": "train"}, None, 0) == {"a": []}
