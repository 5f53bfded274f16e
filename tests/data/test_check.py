"""`check_manifest` reports all problems at once, before a long run would fail on them."""

import shutil

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from histolumen.data.check import check_manifest
from histolumen.data.manifest import Manifest, Row
from tiny import Recorder


def tissue(seed: int) -> np.ndarray:
    """Blurred noise: structures of many sizes, different for each seed."""
    noise = np.random.default_rng(seed).normal(size=(64, 96, 3))
    smooth = sum(gaussian_filter(noise, (size, size, 0)) * size for size in (1, 3, 9))
    return np.interp(smooth, (smooth.min(), smooth.max()), (0, 255)).astype(np.uint8)


@pytest.fixture
def rows(save) -> list[Row]:
    """A valid data set: both classes in every split, with masks."""
    made = []
    for number, (label, split) in enumerate((label, split) for label in "ab" for split in ("train", "valid", "test")):
        save(tissue(number), f"{number}.png")
        save(np.ones((64, 96), bool), f"{number}_mask.png")
        made.append(Row(f"{number}.png", label, split, f"{number}_mask.png", f"patient {number}"))
    return made


def test_a_valid_manifest_has_no_findings(rows, tmp_path):
    findings = check_manifest(Manifest(tuple(rows), tmp_path))
    assert (findings.problems, findings.warnings) == ([], [])


def test_every_bad_file_is_reported_once(rows, tmp_path, save):
    (tmp_path / "0.png").write_bytes((tmp_path / "0.png").read_bytes()[:50])
    (tmp_path / "1.png").unlink()
    (tmp_path / "2_mask.png").write_bytes(b"")
    save(np.ones((96, 64), bool), "4_mask.png")
    problems = check_manifest(Manifest(tuple(rows), tmp_path)).problems
    assert [problem.split(":")[0] for problem in problems] == [
        str(tmp_path / name) for name in ("0.png", "1.png", "2_mask.png", "4_mask.png")
    ]


def test_an_image_that_training_would_refuse_is_a_problem(rows, tmp_path, save):
    """The image can be decoded, but it is 30 times as wide as high."""
    save(np.zeros((2, 60, 3), np.uint8), "narrow.png")
    problems = check_manifest(Manifest((*rows, Row("narrow.png", "a", "train")), tmp_path)).problems
    assert [problem.split(":")[0] for problem in problems] == [str(tmp_path / "narrow.png")]


def test_a_patient_in_two_splits_is_a_problem(rows, tmp_path):
    rows[1] = Row("1.png", "a", "valid", patient="patient 0")
    (problem,) = check_manifest(Manifest(tuple(rows), tmp_path)).problems
    assert problem.startswith("patient patient 0 has images in the splits train and valid")


def test_near_duplicates_across_splits_are_said(rows, tmp_path, save):
    picture = Image.open(tmp_path / "0.png")  # of training
    picture.transpose(Image.Transpose.ROTATE_90).resize((70, 100)).save(tmp_path / "copy.jpg", quality=60)
    findings = check_manifest(Manifest((*rows, Row("copy.jpg", "a", "test")), tmp_path))
    assert findings.problems == []
    assert findings.warnings == [
        "1 image(s) look like one of another split, which makes results too optimistic: "
        "copy.jpg (test) and 0.png (train)"
    ]


def test_duplicates_within_a_split_are_not_said(rows, tmp_path):
    shutil.copy(tmp_path / "0.png", tmp_path / "copy.png")
    assert check_manifest(Manifest((*rows, Row("copy.png", "a", "train")), tmp_path)).warnings == []


def test_images_read_as_twelve_bit_are_said(rows, tmp_path, save):
    save(np.random.default_rng(9).integers(0, 4096, (64, 64)).astype(np.uint16), "dim.png")
    (warning,) = check_manifest(Manifest((*rows, Row("dim.png", "a", "train")), tmp_path)).warnings
    assert warning.startswith("1 image(s) have 16-bit files whose values stay below 4096")
    assert "dim.png" in warning


def test_images_without_a_patient_are_not_grouped(rows, tmp_path):
    without_patients = tuple(Row(row.image, row.label, row.split) for row in rows)
    assert check_manifest(Manifest(without_patients, tmp_path)).warnings == []


def test_a_missing_class_or_split_gives_a_warning(rows, tmp_path):
    kept = [row for row in rows if (row.label, row.split) != ("b", "valid") and row.split != "test"]
    assert check_manifest(Manifest(tuple(kept), tmp_path)).warnings == [
        "the valid split has no image of class b",
        "there is no test split",
    ]


def test_progress_sees_every_row(rows, tmp_path):
    recorder = Recorder()
    check_manifest(Manifest(tuple(rows), tmp_path), recorder)
    assert recorder.seen == rows
