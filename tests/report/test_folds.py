"""Cross-validation: every image is held out once, patients stay together, test images are never used."""

import csv
from collections import Counter
from dataclasses import replace

import pytest

from commands import histolumen
from histolumen.data.manifest import Manifest, Row, read_manifest
from histolumen.errors import DataError
from histolumen.report.folds import FoldsPlan, fold_manifest, folds_table
from histolumen.report.runs.plan import Job
from histolumen.report.runs.runner import Results, RunResult
from tiny import TINY

SHORT = [part for override in (*TINY, "train.epochs=1") for part in ("--set", override)]


@pytest.fixture
def many(tmp_path) -> Manifest:
    """60 images of 20 patients with one class each, and 6 test images."""
    rows = [
        Row(f"{k}.png", "ab"[k % 20 // 10], ("train", "valid")[k % 3 == 0], patient=f"p{k % 20}") for k in range(60)
    ]
    return Manifest((*rows, *(Row(f"t{k}.png", "ab"[k % 2], "test") for k in range(6))), tmp_path)


def test_every_image_outside_the_test_split_is_held_out_once(many):
    held_out = Counter(row.image for fold in range(1, 6) for row in fold_manifest(many, fold, 5, 0).split("test").rows)
    assert held_out == Counter({f"{k}.png": 1 for k in range(60)})


@pytest.mark.parametrize("fold", [1, 2, 3, 4, 5])
def test_patients_stay_together_and_classes_are_balanced(many, fold):
    divided = fold_manifest(many, fold, 5, 0)
    assert divided.shared_patients == {}
    assert not any(row.image.startswith("t") for row in divided.rows)
    for name, share in (("test", 12), ("valid", 7)):
        counts = Counter(row.label for row in divided.split(name).rows)
        assert set(counts) == {"a", "b"}
        assert abs(sum(counts.values()) - share) <= 3
    assert len(divided.rows) == 60


def test_the_seed_determines_the_folds(many):
    assert fold_manifest(many, 2, 5, 7) == fold_manifest(many, 2, 5, 7)
    assert fold_manifest(many, 2, 5, 7) != fold_manifest(many, 2, 5, 8)


def test_a_fold_without_a_class_is_refused(many):
    with pytest.raises(DataError, match=r"--folds 11: .* class 'a', which has 10 patients outside the test split"):
        fold_manifest(many, 1, 11, 0)
    alone = replace(many, rows=tuple(replace(row, patient="") for row in many.rows))
    with pytest.raises(DataError, match="class 'a', which has 30 images"):
        fold_manifest(alone, 1, 31, 0)


def test_the_table_ends_with_mean_and_standard_deviation():
    plan = FoldsPlan(recipe="folder", folds=3)
    scores = [{"error": 10.0, "auc": 90.0}, {"error": 20.0, "auc": None}]

    def finished(job: Job, values: dict) -> RunResult:
        return RunResult(job, {**values, "images": 10, "interval_95": dict.fromkeys(values)}, 60.0)

    runs = [finished(job, values) for job, values in zip(plan.jobs(), scores, strict=False)]
    table = folds_table(Results(plan, runs, []))
    assert table.columns == ["fold", "images", "classification error", "area under the ROC curve", "minutes"]
    assert table.rows == [
        ["fold 1", "10", "10.00", "90.00", "1.0"],
        ["fold 2", "10", "20.00", "--", "1.0"],
        ["fold 3", "--", "--", "--", "--"],
        ["mean ± std", "20", "15.00 ± 7.07", "90.00", "2.0"],
    ]
    assert table.notes[-1] == "1 fold(s) are missing."


def test_a_recipe_is_cross_validated_without_masks_and_resumed(tiny_manifest, tmp_path):
    rows = tuple(replace(row, mask="") for row in tiny_manifest.rows)
    test = {row.image for row in rows if row.split == "test"}
    replace(tiny_manifest, rows=rows).write(tmp_path / "manifest.csv")
    command = [
        "evaluate",
        "folder",
        "--folds",
        2,
        "--data",
        tmp_path / "manifest.csv",
        "--out",
        tmp_path / "cv",
        *SHORT,
    ]
    first = histolumen(*command)
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("training fold") == 2
    with (tmp_path / "cv" / "table.csv").open(newline="") as handle:
        table = list(csv.DictReader(handle))
    assert [row["fold"] for row in table] == ["fold 1", "fold 2", "mean ± std"]
    assert int(table[2]["images"]) == len(rows) - len(test)
    assert {"balanced accuracy", "recognised of benign", "calibration error (ECE)"} <= table[0].keys()
    assert "PxAP" not in table[0]
    for fold in (1, 2):
        used = {row.image for row in read_manifest(tmp_path / "cv" / "runs" / f"fold-{fold}" / "manifest.csv").rows}
        assert test
        assert not used & test
    again = histolumen(*command)
    assert again.returncode == 0
    assert "training fold" not in again.stderr
    assert again.stdout == first.stdout
    other = histolumen(*[3 if part == 2 else part for part in command])
    assert other.returncode == 2
    assert "holds runs with folds 2, not 3" in other.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folds", "3"], "give a folder for them with --out"),
        (["--folds", "3", "--out", "cv", "--split", "valid"], "are for a run"),
        (["--out", "cv"], "add --folds"),
        ([], "is a recipe, not a run"),
    ],
)
def test_options_that_do_not_fit_are_explained(tiny_manifest, tmp_path, options, message):
    data = tiny_manifest.root / "manifest.csv"
    result = histolumen("evaluate", "folder-best", "--data", data, *options, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "cv").exists()
