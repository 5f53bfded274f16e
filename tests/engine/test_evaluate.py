"""Evaluation: scores computed by hand, with and without masks, with unreadable files."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image

from histolumen.data.manifest import Manifest, Row
from histolumen.engine.evaluate import evaluate, image_record
from histolumen.engine.prediction import Prediction
from histolumen.errors import DataError


@dataclass
class LeftHalf:
    """A model that marks the left half of every image and calls it benign."""

    classes: tuple[str, ...] = ("benign", "malignant")
    classifies: bool = True
    identity: str = "left half"
    temperature: float = 1.0

    def predict(self, image):
        soft = np.zeros(image.shape[:2], np.float32)
        soft[:, : image.shape[1] // 2] = 0.9
        return Prediction({"benign": 0.8, "malignant": 0.2}, soft, image)


class ByLabel(LeftHalf):
    """A model with evidence for `malignant` everywhere and for `benign` nowhere."""

    def predict(self, image):
        evidence = torch.stack([torch.full((4, 4), -1.0), torch.full((4, 4), 1.0)])
        return replace(super().predict(image), evidence=evidence)


@pytest.fixture
def manifest(tmp_path):
    """Two 10 x 10 images: truth is the left half of one, the left fifth of the other."""
    rows = []
    for name, label, columns in (("a", "benign", 5), ("b", "malignant", 2)):
        Image.radial_gradient("L").resize((10, 10)).save(tmp_path / f"{name}.png")
        truth = np.zeros((10, 10), np.uint8)
        truth[:, :columns] = 7  # an instance label
        Image.fromarray(truth).save(tmp_path / f"{name}_mask.png")
        rows.append(Row(f"{name}.png", label, "test", f"{name}_mask.png"))
    return Manifest(tuple(rows), tmp_path)


def test_scores_by_hand(manifest):
    result = evaluate(LeftHalf(), manifest, "test").as_dict()
    assert result["error"] == 50
    assert result["f1_plus"] == pytest.approx(100 * (1 + 2 * 20 / (50 + 20)) / 2)
    assert result["f1_minus"] == pytest.approx(100 * (1 + 2 * 50 / (80 + 50)) / 2)
    assert result["miou"] == pytest.approx(100 * (1 + (20 / 50 + 50 / 80) / 2) / 2)
    assert result["pxap"] == pytest.approx(100 * 70 / 100)  # all 70 true pixels among the 100 marked ones
    assert result["predicted_foreground_share"] == pytest.approx(0.5)
    assert result["true_foreground_share"] == pytest.approx(0.35)
    assert result["pixel_confusion"] == {
        "true_negative": 100,
        "false_positive": 30,
        "false_negative": 0,
        "true_positive": 70,
    }
    low, high = result["interval_95"]["f1_plus"]
    assert low <= result["f1_plus"] <= high


def test_the_papers_binarisation_uses_the_true_label(manifest):
    honest, paper = (evaluate(ByLabel(), manifest, "test", binarise=how) for how in ("threshold", "true-label"))
    assert [image.predicted_share for image in honest.images] == [0.5, 0.5]
    assert [image.predicted_share for image in paper.images] == [0, 1]
    assert (honest.as_dict()["binarise"], paper.as_dict()["binarise"]) == ("threshold", "true-label")
    assert honest.scores["pxap"] == paper.scores["pxap"]


def test_without_evidence_both_binarisations_agree(manifest):
    honest, paper = (evaluate(LeftHalf(), manifest, "test", binarise=how).scores for how in ("threshold", "true-label"))
    assert honest == paper


def test_a_model_that_does_not_classify_has_no_error(manifest):
    assert "error" not in evaluate(LeftHalf(classifies=False), manifest, "test").scores


def test_without_masks_only_classification_is_evaluated(manifest):
    bare = replace(manifest, rows=tuple(replace(row, mask="") for row in manifest.rows))
    result = evaluate(LeftHalf(), bare, "test")
    assert set(result.scores) == {"error", "balanced_accuracy", "recall_benign", "recall_malignant", "auc", "ece"}
    assert result.confusion is None
    assert "f1_plus" not in image_record(result.images[0])


def test_a_class_without_masks_has_empty_true_masks(manifest):
    """Camelyon16: normal patches have no mask file; F1+ is a mean over the others, F1- over all with background."""
    rows = (manifest.rows[0], replace(manifest.rows[1], mask=""))
    result = evaluate(LeftHalf(), replace(manifest, rows=rows), "test")
    assert result.scores["f1_plus"].value == pytest.approx(100)
    assert result.scores["f1_minus"].value == pytest.approx(100 * (1 + 2 * 50 / (100 + 50)) / 2)
    assert image_record(result.images[1])["f1_plus"] is None


def test_a_missing_mask_in_a_class_with_masks_is_unknown_not_empty(manifest):
    rows = (*manifest.rows, replace(manifest.rows[1], image="c.png", mask=""))
    Image.radial_gradient("L").resize((10, 10)).save(manifest.root / "c.png")
    result = evaluate(LeftHalf(), replace(manifest, rows=rows), "test")
    assert [image.pixels is None for image in result.images] == [False, False, True]


def test_bad_files_are_listed_and_the_others_evaluated(manifest):
    Image.new("L", (3, 3)).save(manifest.root / "b_mask.png")
    result = evaluate(LeftHalf(), manifest, "test")
    assert len(result.images) == 1
    assert "b_mask.png: the mask is 3 x 3 pixels" in result.failures[0]


def test_a_split_that_cannot_be_evaluated_is_an_error(manifest):
    with pytest.raises(DataError, match="no image in split 'valid'; it has: test"):
        evaluate(LeftHalf(), manifest, "valid")
    with pytest.raises(DataError, match="unknown split 'tset'; did you mean 'test'"):
        evaluate(LeftHalf(), manifest, "tset")
    with pytest.raises(DataError, match="label 'benign' is not a class"):
        evaluate(LeftHalf(("x", "malignant")), manifest, "test")
    for row in manifest.rows:
        (manifest.root / row.image).unlink()
    with pytest.raises(DataError, match=r"could be read; first problem: .*a\.png"):
        evaluate(LeftHalf(), manifest, "test")


def test_watch_is_called_with_every_prediction(manifest):
    seen = []
    evaluate(LeftHalf(), manifest, "test", watch=lambda row, prediction, truth: seen.append((row.image, truth.sum())))
    assert seen == [("a.png", 50), ("b.png", 20)]


def test_shares_are_written_in_0_to_1_and_printed_in_percent(manifest):
    result = evaluate(LeftHalf(), manifest, "test")
    assert [image_record(image)["foreground_share"] for image in result.images] == [0.5, 0.5]
    assert [image_record(image)["true_foreground_share"] for image in result.images] == [0.5, 0.2]
    true = next(line for line in str(result).splitlines() if "foreground, true" in line)
    assert true.split()[2] == "35.00"


def test_the_calibration_error_is_given_before_and_after(manifest):
    calibrated = evaluate(LeftHalf(temperature=2.0), manifest, "test")  # 0.8 was 16 / 17 before
    assert calibrated.scores["ece"].value == pytest.approx(30)  # half of the answers are right
    assert calibrated.scores["ece_uncalibrated"].value == pytest.approx(100 * (16 / 17 - 0.5))
    assert calibrated.as_dict()["temperature"] == 2.0
    assert "calibrated with temperature 2.00" in str(calibrated)
    assert "ece_uncalibrated" not in evaluate(LeftHalf(), manifest, "test").scores
