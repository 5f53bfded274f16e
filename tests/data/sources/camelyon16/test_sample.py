"""Sampling Camelyon16-P512 from slides: protocol, reproducibility, resuming, bad input."""

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import shapely
from outline_files import rectangle, write_outlines
from slide_files import GLASS, speckled, write_mosaic_slide, write_slide

import histolumen.data.sources.camelyon16.patches as patches
from commands import histolumen
from histolumen.data.check import check_manifest
from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import read_manifest
from histolumen.data.sources.camelyon16.sample import SamplingPlan, sample_camelyon16
from histolumen.errors import DataError, DiskError
from tiny import SMALL

EMPTY = np.full((512, 512, 3), GLASS, np.uint8)


def mosaic(path: Path, side: int, seed: int) -> Path:
    """A square slide, `side` patches wide, of tissue with one column of glass at the left."""
    layout = np.ones((side, side), int)
    layout[:, 0] = 0
    return write_mosaic_slide(path, [EMPTY, speckled(512, 512, seed)], layout)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Three normal slides, three with tumour, and two test slides; `slides` and `xml` below one folder."""
    root = tmp_path_factory.mktemp("camelyon")
    slides, xml = root / "slides", root / "xml"
    slides.mkdir()
    xml.mkdir()
    for number in range(1, 4):
        mosaic(slides / f"normal_{number:03}.tif", 4, number)
        mosaic(slides / f"tumor_{number:03}.tif", 4, 10 + number)
        outline = [(300, 100), (1900, 200 * number), (1500, 1800), (700, 1500)]
        write_outlines(xml / f"tumor_{number:03}.xml", ("_0", outline), ("_2", rectangle(900, 700, 300, 200)))
    mosaic(slides / "test_001.tif", 4, 21)
    write_outlines(xml / "test_001.xml", ("Tumor", rectangle(600, 600, 700, 700)))
    mosaic(slides / "test_003.tif", 4, 23)
    return root


@pytest.fixture
def camelyon(originals, tmp_path):
    """A copy of the slides that a test may damage."""
    return Path(shutil.copytree(originals, tmp_path / "camelyon"))


@pytest.fixture
def out(sampled, tmp_path):
    """A copy of the finished set, so that a test repeats only part of the work."""
    return Path(shutil.copytree(sampled[0], tmp_path / "out"))


def sample(root, out, dry_run=False, **plan):
    found = sample_camelyon16(root / "slides", root / "xml", out, SamplingPlan(**plan), dry_run)
    if found.manifest.rows and not dry_run:
        found.manifest.write(out / "manifest.csv")
    return found


@pytest.fixture(scope="module")
def sampled(originals, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, sample(originals, out)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def is_balanced(manifest):
    counts = Counter((row.split, row.label) for row in manifest.rows)
    return all(counts[split, "normal"] == counts[split, "metastatic"] for split in ("train", "valid", "test"))


def test_the_set_is_balanced_split_by_slide_and_readable(originals, sampled):
    out, found = sampled
    assert (found.notes, found.failures) == ([], {})
    manifest = read_manifest(out / "manifest.csv")
    assert manifest.rows == found.manifest.rows
    assert is_balanced(manifest)
    assert {row.split for row in manifest.rows} == {"train", "valid", "test"}
    slides = {(row.patient, row.label, row.split) for row in manifest.rows}
    assert len({group for group, *_ in slides}) == len(slides)  # one class, one split
    assert {group for group, _, split in slides if split == "test"} == {"test_001", "test_003"}
    assert Counter((label, split) for _, label, split in slides)["metastatic", "train"] == 2
    for row in manifest.rows:
        assert bool(row.mask) == (row.label == "metastatic")
        assert manifest.knows_mask(row)
    assert check_manifest(manifest).problems == []


def test_files_are_patches_masks_counts_previews_and_nothing_else(sampled):
    out, found = sampled
    names = {name for row in found.manifest.rows for name in (row.image, row.mask) if name}
    slides = {line.slide for line in found.lines}
    names |= {f"counts/{name}.json" for name in slides} | {f"tissue/{name}.png" for name in slides}
    names |= {f"patches/{name}/taken-from.txt" for name in slides} | {"manifest.csv"}
    assert contents(out).keys() == names


def test_patches_are_the_pixels_of_the_slide(sampled):
    out, found = sampled
    seeds = {f"{kind}_00{n}": base + n for kind, base in (("normal", 0), ("tumor", 10), ("test", 20)) for n in range(5)}
    for row in found.manifest.rows[::5]:
        left, top = map(int, re.findall(r"\d+", Path(row.image).name))
        tissue = speckled(512, 512, seeds[row.patient])
        whole = np.tile(np.concatenate([EMPTY, tissue, tissue, tissue], axis=1), (4, 1, 1))
        assert (read_image(out / row.image) == whole[top : top + 512, left : left + 512]).all()


def test_the_same_seed_gives_the_same_bytes_in_any_number_of_processes(originals, sampled, tmp_path):
    sample(originals, tmp_path, workers=2)
    assert contents(tmp_path) == contents(sampled[0])


def test_another_seed_chooses_other_patches(originals, sampled, out):
    other = sample(originals, out, dry_run=True, seed=1)
    assert other.manifest.rows != sampled[1].manifest.rows


def test_per_slide_limits_metastatic_patches(originals, out):
    found = sample(originals, out, dry_run=True, per_slide=2)
    assert max(Counter(row.patient for row in found.manifest.rows if row.label == "metastatic").values()) == 2
    assert is_balanced(found.manifest)


def test_a_dry_run_counts_and_writes_no_patch(originals, sampled, tmp_path):
    found = sample(originals, tmp_path, dry_run=True)
    assert found.lines == sampled[1].lines
    assert {path.name for path in tmp_path.iterdir()} == {"counts", "tissue"}
    table = found.table()
    assert re.search(r"train +tumor_00\d +metastatic +\d+ +\d+", table)
    assert "test   1 normal slides: 12 candidates, " in table


def test_a_finished_set_is_not_written_again(originals, sampled, monkeypatch):
    out, found = sampled
    before = times(out)
    monkeypatch.setattr("histolumen.data.sources.camelyon16.candidates.open_slide", None)  # must not be counted
    monkeypatch.setattr(patches, "open_slide", None)  # must not be read
    again = sample_camelyon16(originals / "slides", originals / "xml", out, SamplingPlan())
    assert again == found
    assert times(out) == before


def test_an_interrupted_run_resumes(originals, sampled, out):
    rows = sampled[1].manifest.rows
    masked = [row for row in rows if row.mask]
    lost = [out / rows[0].image, out / masked[-1].image, out / masked[-1].mask, out / masked[0].mask]
    lost += [out / "manifest.csv", out / "counts" / "normal_001.json"]
    for path in lost:
        path.unlink()
    before = times(out)
    sample(originals, out)
    assert contents(out) == contents(sampled[0])
    pair = {out / masked[0].image}  # written with its mask
    assert {path for path, time in times(out).items() if before.get(path) != time} - pair <= {
        *lost,
        out / "tissue" / "normal_001.png",  # counted again
    }


def test_patches_of_older_outlines_are_removed(camelyon, out):
    write_outlines(camelyon / "xml" / "test_001.xml", ("_0", rectangle(1024, 1024, 300, 300)))
    found = sample(camelyon, out)
    mine = {row.image: row.mask for row in found.manifest.rows if row.patient == "test_001"}
    place = f"x{1024 - 512 + 205}_y768.png"  # 205 columns x 256 rows are 20.02 %
    assert [path.name for path in (out / "masks" / "test_001").iterdir()] == [place]
    assert mine == {f"patches/test_001/{place}": f"masks/test_001/{place}"}
    assert read_mask(out / "masks" / "test_001" / place, (512, 512)).sum() == 205 * 256


# --- real outlines


def real_polygon(path):
    """The one tumour of the file, read without the code under test."""
    text = path.read_text()
    points = re.findall(r'X="([\d.]+)" Y="([\d.]+)"', text)
    assert text.count("<Annotation ") == 1
    return shapely.Polygon([(float(x), float(y)) for x, y in points])


def test_masks_of_real_outlines_agree_with_shapely(large_slide, real_outlines, tmp_path):
    slides, xml, out = tmp_path / "slides", tmp_path / "xml", tmp_path / "out"
    slides.mkdir()
    xml.mkdir()
    (slides / large_slide.name).symlink_to(large_slide)
    shutil.copy(real_outlines / "tumor_073.xml", xml)
    mosaic(slides / "normal_001.tif", 8, 1)

    found = sample_camelyon16(slides, xml, out, SamplingPlan())
    assert found.failures == {}

    tumour = real_polygon(xml / "tumor_073.xml")
    shapely.prepare(tumour)
    chosen = [row for row in found.manifest.rows if row.label == "metastatic"]
    assert len(chosen) == sum(row.label == "normal" for row in found.manifest.rows) > 20
    shares = []
    for row in chosen:
        left, top = map(int, re.findall(r"\d+", Path(row.mask).name))
        y, x = np.mgrid[top : top + 512, left : left + 512] + 0.5
        truth = shapely.contains_xy(tumour, x, y)
        assert (read_mask(out / row.mask, (512, 512)) == truth).all()
        shares.append(truth.mean())
        area = tumour.intersection(shapely.box(left, top, left + 512, top + 512)).area / 512**2
        assert abs(area - truth.mean()) < 0.002
    assert min(shares) >= 0.2
    assert np.mean(np.array(shares) <= 0.5) == pytest.approx(0.61, abs=0.02)


# --- bad input: one line per bad slide, the others are sampled


def truncate(root):
    slide = root / "slides" / "normal_001.tif"
    slide.write_bytes(slide.read_bytes()[:3000])
    return "normal_001", "normal_001.tif: "


def no_slide(root):
    (root / "slides" / "normal_001.tif").write_text("not a slide")
    return "normal_001", "not a slide that OpenSlide reads"


def all_glass(root):
    write_slide(root / "slides" / "normal_001.tif", np.full((1024, 1024, 3), GLASS, np.uint8))
    return "normal_001", "no tissue found"


def two_of_a_name(root):
    shutil.copy(root / "slides" / "normal_001.tif", root / "slides" / "normal_001.svs")
    return "normal_001", "two slides with the same name"


def tumour_without_outlines(root):
    (root / "xml" / "tumor_001.xml").unlink()
    return "tumor_001", "tumour slide without outlines"


def broken_outlines(root):
    (root / "xml" / "tumor_001.xml").write_text("<ASAP")
    return "tumor_001", "not well-formed"


def entity_bomb(root):
    (root / "xml" / "tumor_001.xml").write_text("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>")
    return "tumor_001", "document type or entities"


def outlines_of_another_slide(root):
    write_outlines(root / "xml" / "tumor_001.xml", ("_0", rectangle(70_000, 700, 500, 500)))
    return "tumor_001", "lies wholly outside"


BAD = [
    truncate, no_slide, all_glass, two_of_a_name, tumour_without_outlines, broken_outlines,
    entity_bomb, outlines_of_another_slide,
]  # fmt: skip


def test_a_slide_with_too_little_tumour_gives_a_note(camelyon, out):
    write_outlines(camelyon / "xml" / "tumor_001.xml", ("_0", rectangle(700, 700, 50, 50)))
    found = sample(camelyon, out)
    assert found.failures == {}
    assert any("tumor_001" in note and "10 % tissue and 20 % tumour" in note for note in found.notes)
    assert is_balanced(found.manifest)


@pytest.mark.parametrize("spoil", BAD)
def test_a_bad_slide_gives_one_line_and_the_others_are_sampled(camelyon, out, spoil):
    name, message = spoil(camelyon)
    found = sample(camelyon, out)
    assert found.failures.keys() == {name}
    assert message in found.failures[name]
    assert "\n" not in found.failures[name]
    assert name not in {row.patient for row in found.manifest.rows}
    assert is_balanced(found.manifest)
    assert {row.split for row in found.manifest.rows} >= {"train", "test"}


def test_a_slide_that_fails_during_writing_is_replaced_by_others(camelyon, out):
    """The thumbnail is intact, because small levels are at the end of the file; level 0 is damaged."""
    slide = camelyon / "slides" / "tumor_002.tif"
    state = slide.stat()
    shutil.rmtree(out / "patches" / "tumor_002")
    content = bytearray(slide.read_bytes())
    content[200:5000] = bytes(4800)
    slide.write_bytes(content)
    os.utime(slide, ns=(state.st_atime_ns, state.st_mtime_ns))
    found = sample(camelyon, out)
    assert found.failures.keys() == {"tumor_002"}
    assert "damaged or truncated" in found.failures["tumor_002"]
    assert is_balanced(found.manifest)
    assert check_manifest(found.manifest).problems == []


def test_a_full_disk_is_reported_for_the_slide(originals, out, monkeypatch):
    def full_for_one(pixels, path):
        if "normal_002" in str(path):
            raise DiskError(f"{path}: the disk is full; free some space or write elsewhere.")
        save(pixels, path)

    save = patches._save_patch
    monkeypatch.setattr(patches, "_save_patch", full_for_one)
    shutil.rmtree(out / "patches" / "normal_002")
    found = sample(originals, out)
    assert "the disk is full" in found.failures["normal_002"]
    assert is_balanced(found.manifest)
    assert check_manifest(found.manifest).problems == []


def test_repairs_and_annotations_without_a_slide_are_noted(camelyon, out):
    bow_tie = [(600, 600), (1900, 1900), (1900, 600), (600, 1900)]
    write_outlines(camelyon / "xml" / "tumor_001.xml", ("_0", bow_tie))
    write_outlines(camelyon / "xml" / "tumor_099.xml", ("_0", bow_tie))
    for _ in range(2):  # the second time from stored counts
        found = sample(camelyon, out, dry_run=True)
        assert found.failures == {}
        assert ["tumor_099.xml" in found.notes[0], "repaired" in found.notes[1]] == [True, True]


def test_test_slides_without_any_outlines_give_a_note(camelyon, out):
    (camelyon / "xml" / "test_001.xml").unlink()
    found = sample(camelyon, out, dry_run=True)
    assert "are the outlines of the test slides among the annotations?" in found.notes[0]
    assert not any(row.split == "test" for row in found.manifest.rows)


def test_shares_are_checked_before_any_work(originals, tmp_path):
    with pytest.raises(DataError, match="leave nothing to train on"):
        sample(originals, tmp_path / "out", valid=1.0)
    assert not (tmp_path / "out").exists()


# --- the command


def run(*arguments):
    return histolumen("data", "camelyon16", *arguments, "--patches", "sample")


def test_the_command_writes_the_set_and_reports_skipped_slides(camelyon, sampled, out):
    (out / "manifest.csv").unlink()
    result = run(camelyon / "slides", camelyon / "xml", "--out", out, "--workers", 1)
    assert result.returncode == 0, result.stderr
    assert f"manifest: {out / 'manifest.csv'}" in result.stdout
    assert (out / "manifest.csv").read_bytes() == (sampled[0] / "manifest.csv").read_bytes()

    (camelyon / "slides" / "mine.tif").write_text("not a slide")
    write_outlines(camelyon / "xml" / "mine_too.xml", ("_0", rectangle(0, 0, 10, 10)))
    result = run(camelyon / "slides", camelyon / "xml", "--out", out, "--workers", 1, "--dry-run")
    assert result.returncode == 3
    assert "candidates" in result.stdout
    lines = result.stderr.splitlines()
    assert len([line for line in lines if line.startswith("left out: ") and "mine.tif" in line]) == 1
    assert len([line for line in lines if line.startswith("note: ") and "mine_too.xml" in line]) == 1
    assert "Traceback" not in result.stderr


def test_a_missing_folder_gives_one_line(tmp_path):
    result = run(tmp_path / "none", tmp_path, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert result.stderr == f"histolumen: {tmp_path / 'none'}: no such folder\n"


def test_the_papers_second_table_from_a_sampled_set(sampled, tmp_path):
    """From slides to `benchmark camelyon16`: error, F1+ over metastatic patches alone, F1- over all with background."""
    out, _ = sampled
    settings = [part for override in (*SMALL, "train.epochs=1") for part in ("--set", override)]
    arguments = [
        "camelyon16",
        "--data",
        str(out / "manifest.csv"),
        "--methods",
        "sem",
        "--methods",
        "all-ones",
        "--out",
        str(tmp_path),
    ]
    said = histolumen("benchmark", *arguments, *settings)
    assert said.returncode == 0, said.stderr
    truths = [read_mask(out / row.mask, (512, 512)) for row in read_manifest(out / "manifest.csv").rows
              if row.split == "test" and row.mask]  # fmt: skip
    shares = np.array([truth.mean() for truth in truths])
    ones = next(line for line in said.stdout.splitlines() if "All-ones" in line)
    assert f"{100 * (2 * shares / (1 + shares)).mean():.2f}" in ones
