"""What a long run would stumble over is found beforehand, all of it at once."""

import numpy as np
import pytest

from histolumen.data.check import check_manifest
from histolumen.data.manifest import Manifest, Row


@pytest.fixture
def rows(save) -> list[Row]:
    """Both classes in every split, with masks, nothing wrong."""
    made = []
    for number, (label, split) in enumerate((label, split) for label in "ab" for split in ("train", "valid", "test")):
        save(np.full((16, 24, 3), number, np.uint8), f"{number}.png")
        save(np.ones((16, 24), bool), f"{number}_mask.png")
        made.append(Row(f"{number}.png", label, split, f"{number}_mask.png", f"patient {number}"))
    return made


def test_nothing_wrong_finds_nothing(rows, tmp_path):
    findings = check_manifest(Manifest(tuple(rows), tmp_path))
    assert (findings.problems, findings.warnings) == ([], [])


def test_every_bad_file_is_named_once_and_the_others_are_still_looked_at(rows, tmp_path, save):
    (tmp_path / "0.png").write_bytes((tmp_path / "0.png").read_bytes()[:50])
    (tmp_path / "1.png").unlink()
    (tmp_path / "2_mask.png").write_bytes(b"")
    save(np.ones((24, 16), bool), "4_mask.png")
    problems = check_manifest(Manifest(tuple(rows), tmp_path)).problems
    assert [problem.split(":")[0] for problem in problems] == [
        str(tmp_path / name) for name in ("0.png", "1.png", "2_mask.png", "4_mask.png")
    ]


def test_an_image_that_training_would_refuse_is_a_problem(rows, tmp_path, save):
    """Its pixels can be read, but no network can see an image 30 times as wide as high."""
    save(np.zeros((2, 60, 3), np.uint8), "narrow.png")
    problems = check_manifest(Manifest((*rows, Row("narrow.png", "a", "train")), tmp_path)).problems
    assert [problem.split(":")[0] for problem in problems] == [str(tmp_path / "narrow.png")]


def test_a_patient_in_two_splits_is_worth_a_warning(rows, tmp_path):
    rows[1] = Row("1.png", "a", "valid", group="patient 0")
    (warning,) = check_manifest(Manifest(tuple(rows), tmp_path)).warnings
    assert warning.startswith("1 group(s) have images in more than one split (first: patient 0)")


def test_images_without_a_group_are_no_patient(rows, tmp_path):
    ungrouped = tuple(Row(row.image, row.label, row.split) for row in rows)
    assert check_manifest(Manifest(ungrouped, tmp_path)).warnings == []


def test_a_class_or_a_split_that_is_missing_is_worth_a_warning(rows, tmp_path):
    kept = [row for row in rows if (row.label, row.split) != ("b", "valid") and row.split != "test"]
    assert check_manifest(Manifest(tuple(kept), tmp_path)).warnings == [
        "the valid split has no image of class b",
        "there is no test split",
    ]


def test_progress_sees_every_row(rows, tmp_path):
    seen = []

    def track(items):
        for item in items:
            yield item
            seen.append(item)

    check_manifest(Manifest(tuple(rows), tmp_path), track)
    assert seen == rows
