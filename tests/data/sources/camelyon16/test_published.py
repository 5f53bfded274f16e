"""Camelyon16-P512 as published: the list, and patches cut from slides by it."""

import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from outline_files import rectangle, write_outlines
from slide_files import GLASS, speckled, write_mosaic_slide

import histolumen.data.sources.camelyon16.patches as patches
from commands import histolumen
from histolumen.data.check import check_manifest
from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import read_manifest
from histolumen.data.sources.camelyon16.patches import patch_stems
from histolumen.data.sources.camelyon16.published import PublishedPlan, cut_published
from histolumen.data.sources.camelyon16.published_list import METASTATIC, NORMAL, published_counts, published_slides
from histolumen.errors import ConfigError, DataError
from histolumen.settings import from_options

EMPTY = np.full((512, 512, 3), GLASS, np.uint8)

# the list


def test_fold_0_gives_the_papers_split():
    counts = published_counts(0)
    for split, number in (("train", 24_348), ("valid", 8_858), ("test", 15_664)):
        assert counts[split, METASTATIC] == counts[split, NORMAL] == number / 2


@pytest.mark.parametrize("fold", range(5))
def test_every_fold_divides_the_same_training_slides(fold):
    slides = published_slides().values()
    splits = Counter(slide.split(fold) for slide in slides)
    assert splits["test"] == 128
    assert splits["train"] + splits["valid"] == 270
    assert {slide.fold for slide in slides if slide.split(fold) == "valid"} == {str(fold)}
    assert sum(published_counts(fold).values()) == 48_870
    assert published_counts(fold)["test", NORMAL] == 7_832


def test_all_ones_has_the_papers_figure_on_the_list():
    shares = np.array([
        patch.tumour_share
        for slide in published_slides().values()
        if slide.fold == "test" and slide.label == METASTATIC
        for patch in slide.patches
    ])  # fmt: skip
    assert f"{100 * (2 * shares / (1 + shares)).mean():.2f}" == "59.44"


def test_every_line_of_the_list_has_a_file_of_its_own():
    """One place of test_110 is published twice; both count."""
    stems = {slide.name: patch_stems([patch.place for patch in slide.patches]) for slide in published_slides().values()}
    assert sum(len(set(names)) for names in stems.values()) == 48_870
    assert [name for names in stems.values() for name in names if name.count("_") > 1] == ["x92659_y59714_2"]


# cutting


@pytest.fixture(scope="module")
def originals(large_slide, real_outlines, tmp_path_factory):
    """tumor_073 (fold 0) with its outlines and normal_141 (fold 4), both below one folder."""
    root = tmp_path_factory.mktemp("camelyon")
    (root / "slides").mkdir()
    (root / "xml").mkdir()
    (root / "slides" / "tumor_073.tif").symlink_to(large_slide)
    shutil.copy(real_outlines / "tumor_073.xml", root / "xml")
    layout = np.ones((88, 240), int)
    write_mosaic_slide(root / "slides" / "normal_141.tif", [EMPTY, speckled(512, 512, 1)], layout)
    return root


@pytest.fixture
def camelyon(originals, tmp_path):
    """A copy to spoil; slides are links."""
    return Path(shutil.copytree(originals, tmp_path / "camelyon", symlinks=True))


def cut(root, out, dry_run=False, fold=0):
    return cut_published(root / "slides", root / "xml", out, PublishedPlan(fold=fold), dry_run)


@pytest.fixture(scope="module")
def finished(originals, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, cut(originals, out)


@pytest.fixture
def out(finished, tmp_path):
    return Path(shutil.copytree(finished[0], tmp_path / "out"))


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def place_of(name):
    return tuple(map(int, re.findall(r"\d+", Path(name).name)))


def test_patches_are_the_listed_ones_with_the_listed_tumour_shares(finished):
    out, found = finished
    assert (found.failures, found.notes) == ({}, [])
    assert Counter((row.patient, row.label, row.split) for row in found.manifest.rows) == {
        ("tumor_073", METASTATIC, "valid"): 31, ("normal_141", NORMAL, "train"): 68
    }  # fmt: skip
    for name in ("tumor_073", "normal_141"):
        rows = [row for row in found.manifest.rows if row.patient == name]
        published = published_slides()[name].patches
        assert [place_of(row.image) for row in rows] == [patch.place for patch in published]
        for row, patch in zip(rows, published, strict=True):
            share = read_mask(out / row.mask, (512, 512)).mean() if row.mask else 0.0
            assert share == pytest.approx(patch.tumour_share, abs=0.01)
    assert check_manifest(found.manifest).problems == []


def test_pixels_are_those_of_the_slide(finished):
    out, found = finished
    for row in found.manifest.rows[::10]:
        left, top = place_of(row.image)
        whole = np.tile(speckled(512, 512, 1 if row.label == NORMAL else 0), (2, 2, 1))
        expected = whole[top % 512 :, left % 512 :][:512, :512]
        assert (read_image(out / row.image) == expected).all()


def test_counts_stand_beside_the_published_ones_and_missing_slides_are_named(finished):
    found = finished[1]
    table = found.table()
    assert re.search(r"^valid +metastatic +4,429 +31$", table, re.MULTILINE)
    assert re.search(r"^train +all +24,348 +68$", table, re.MULTILINE)
    assert re.search(r"^test +all +15,664 +0$", table, re.MULTILINE)
    assert len(found.missing) == 396
    assert found.left_out == [
        "396 of the 398 published slides are missing: normal_001, normal_002, normal_003, normal_004, normal_005, ..."
    ]


def test_another_fold_cuts_nothing_again(originals, out, finished, monkeypatch):
    monkeypatch.setattr(patches, "open_slide", None)
    monkeypatch.setattr("histolumen.data.sources.camelyon16.listed_slide.open_slide", None)
    found = cut(originals, out, fold=4)
    assert {(row.patient, row.split) for row in found.manifest.rows} == {
        ("tumor_073", "train"),
        ("normal_141", "valid"),
    }
    assert contents(out) == contents(finished[0])


def test_a_dry_run_compares_and_cuts_nothing(originals, finished, tmp_path):
    found = cut(originals, tmp_path, dry_run=True)
    assert found.manifest.rows == finished[1].manifest.rows
    assert (found.table(), found.left_out) == (finished[1].table(), finished[1].left_out)
    assert {path.name for path in tmp_path.iterdir()} == {"comparison"}


def test_a_killed_run_goes_on_where_it_was(originals, finished, out, monkeypatch):
    shutil.rmtree(out / "patches")
    shutil.rmtree(out / "masks")
    saved = []

    def killed(pixels, path):
        if len(saved) == 80:
            raise KeyboardInterrupt
        saved.append(path)
        save(pixels, path)

    save = patches._save_patch
    monkeypatch.setattr(patches, "_save_patch", killed)
    with pytest.raises(KeyboardInterrupt):
        cut(originals, out)
    times = {path: path.stat().st_mtime_ns for path in saved}

    later = []
    monkeypatch.setattr(patches, "_save_patch", lambda pixels, path: (later.append(path), save(pixels, path)))
    assert cut(originals, out) == cut(originals, out)
    assert len(saved) == 80
    assert len(later) == 19
    assert times == {path: path.stat().st_mtime_ns for path in saved}
    assert contents(out) == contents(finished[0])


# what is not the published slide


def test_shifted_outlines_leave_the_slide_out(camelyon, out):
    xml = camelyon / "xml" / "tumor_073.xml"
    shifted = re.sub(r'X="([\d.]+)"', lambda match: f'X="{float(match[1]) + 60}"', xml.read_text())
    xml.write_text(shifted)
    found = cut(camelyon, out)
    assert found.failures.keys() == {"tumor_073"}
    said = found.failures["tumor_073"]
    assert re.search(r"tumor_073\.tif: \d+ of 31 patches have a tumour share that differs from the published one", said)
    assert "the slide is left out" in said
    assert str(xml) in said
    assert {row.patient for row in found.manifest.rows} == {"normal_141"}


def test_a_few_patches_that_differ_are_left_out_alone(camelyon, out):
    """A hole in the outlines that lies inside one patch."""
    xml = camelyon / "xml" / "tumor_073.xml"
    left, top = 44649, 59692
    hole = write_outlines(camelyon / "hole", ("_2", rectangle(left + 200, top + 200, 100, 100))).read_text()
    annotation = re.search("<Annotation .*</Annotation>", hole)[0]
    xml.write_text(xml.read_text().replace("</Annotations>", annotation + "</Annotations>"))
    found = cut(camelyon, out)
    assert "1 of 31 patches" in found.failures["tumor_073"]
    assert f"x {left}, y {top}" in found.failures["tumor_073"]
    assert "these patches are left out" in found.failures["tumor_073"]
    mine = {place_of(row.image) for row in found.manifest.rows if row.patient == "tumor_073"}
    assert mine == {patch.place for patch in published_slides()["tumor_073"].patches} - {(left, top)}


def small_slide(path):
    return write_mosaic_slide(path, [speckled(512, 512)], np.zeros((4, 4), int))


def reduced_copy(path):
    return write_mosaic_slide(path, [EMPTY, speckled(512, 512, 1)], np.ones((88, 240), int), mpp=0.5)


@pytest.mark.parametrize(
    ("write", "message"),
    [(small_slide, "has 2048 x 2048 pixels, but a published patch lies at"), (reduced_copy, "states 0.5 microns")],
)
def test_another_slide_or_level_is_left_out(camelyon, out, write, message):
    path = camelyon / "slides" / "normal_141.tif"
    path.unlink()
    write(path)
    found = cut(camelyon, out)
    assert found.failures.keys() == {"normal_141"}
    assert message in found.failures["normal_141"]
    assert {row.patient for row in found.manifest.rows} == {"tumor_073"}


def test_slides_without_needed_outlines_fail_and_slides_that_are_not_listed_are_notes(camelyon, out):
    for name in ("test_002", "test_114", "test_049", "mine"):
        small_slide(camelyon / "slides" / f"{name}.tif")
    found = cut(camelyon, out)
    assert found.failures.keys() == {"test_002"}
    assert "put test_002.xml into" in found.failures["test_002"]
    assert len(found.missing) == 395
    assert len(found.notes) == 3
    for name, said in (
        ("test_114", "not reliably outlined"),
        ("test_049", "may be normal or not"),
        ("mine", "1 slide(s)"),
    ):
        assert any(name in note and said in note for note in found.notes)


def test_slides_of_ones_own_are_sent_to_the_sampler(tmp_path):
    small_slide(tmp_path / "mine.tif")
    with pytest.raises(DataError, match=r"none of the 398 published slides.*--patches sample"):
        cut_published(tmp_path, tmp_path, tmp_path / "out", PublishedPlan())


# the command


def run(*arguments):
    return histolumen("data", "camelyon16", *arguments)


def test_the_command_cuts_the_published_patches_in_several_processes(originals, finished, tmp_path):
    result = run(originals / "slides", originals / "xml", "--out", tmp_path, "--workers", 2)
    assert result.returncode == 3, result.stderr
    assert re.search(r"valid +metastatic +4,429 +31", result.stdout)
    assert f"manifest: {tmp_path / 'manifest.csv'}" in result.stdout
    assert "left out: 396 of the 398 published slides are missing: normal_001, " in result.stderr
    assert read_manifest(tmp_path / "manifest.csv").rows == finished[1].manifest.rows
    (tmp_path / "manifest.csv").unlink()
    assert contents(tmp_path) == contents(finished[0])


def test_outlines_beside_the_slides_need_no_folder_of_their_own(camelyon, out):
    shutil.move(camelyon / "xml" / "tumor_073.xml", camelyon / "slides")
    result = run(camelyon / "slides", "--out", out, "--dry-run", "--workers", 1, "--fold", 1)
    assert result.returncode == 3, result.stderr
    assert re.search(r"train +metastatic +13,170 +31", result.stdout)
    assert not (out / "manifest.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--valid", "0.3"], "--valid goes with --patches sample"),
        (["--patches", "sample", "--fold", "1"], "--fold goes with --patches published"),
        (["--fold", "5"], "--fold 5: input should be less than 5"),
    ],
)
def test_options_of_the_other_way_are_refused(tmp_path, arguments, said):
    result = run(tmp_path, "--out", tmp_path / "out", *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_folds_are_0_to_4():
    with pytest.raises(ConfigError, match="--fold -1"):
        from_options(PublishedPlan, fold=-1)
