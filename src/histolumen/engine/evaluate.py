"""Evaluation of a model on a split: classification always, masks where the ground truth has them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal

import numpy as np

from histolumen import metrics
from histolumen.calibration import with_temperature
from histolumen.data.image import read_image, read_mask
from histolumen.data.leakage import refuse_shared_patients
from histolumen.data.manifest import Manifest, Row
from histolumen.data.transforms import refuse_unusable
from histolumen.engine.memory import FreedMemory
from histolumen.engine.prediction import THRESHOLD, Prediction, Predictor
from histolumen.errors import DataError, ImageError
from histolumen.familiarity.judgement import Judgement, judgement_columns
from histolumen.metrics import PixelCounts, Score
from histolumen.progress import SILENT, Progress

Binarisation = Literal["threshold", "true-label"]
"""`threshold`: the soft mask at 0.5. `true-label`: the paper's rule for its baselines. A pixel is foreground where the
argmax over class maps is the true class (GlaS: every class has glands) or, if one class has no foreground (Camelyon16:
`images.negative_class` is normal), any other class, whatever the label."""

SHARES = frozenset({"predicted_foreground_share", "true_foreground_share"})
"""Scores in [0, 1]; all others are in percent, as in the paper."""
_TITLES = {
    "error": "classification error",
    "balanced_accuracy": "balanced accuracy",
    "auc": "area under the ROC curve",
    "ece": "calibration error (ECE)",
    "ece_uncalibrated": "  ... at temperature 1",
    "f1_plus": "F1+ (foreground Dice)",
    "f1_minus": "F1- (background Dice)",
    "pxap": "PxAP",
    "miou": "mIoU",
    "predicted_foreground_share": "foreground, predicted",
    "true_foreground_share": "foreground, true",
}
_RECALL = "recall_"  # followed by the name of a class: sensitivity or specificity


@dataclass(frozen=True)
class ImageResult:
    """One evaluated image; `pixels` is None where the true mask is unknown."""

    row: Row
    prediction: str
    probability: float
    probabilities: dict[str, float]
    predicted_share: float
    pixels: PixelCounts | None
    judgement: Judgement | None = None

    @property
    def wrong(self) -> bool:
        """Whether the predicted class is wrong."""
        return self.prediction != self.row.label


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores with 95 % intervals, the result of each image, and the images that could not be read.

    Error, F1, PxAP and mIoU are in percent, as in the paper; foreground shares are in [0, 1].
    """

    split: str
    binarise: Binarisation
    scores: dict[str, Score]
    confusion: dict[str, int] | None
    images: list[ImageResult]
    failures: list[str] = field(default_factory=list)
    made_with: dict[str, str] = field(default_factory=dict)
    """Version of histolumen and identities (SHA-256) of model and manifest."""
    temperature: float = 1.0
    """Calibration of the class probabilities; 1: they are as the method computes them."""

    @property
    def taken_as_empty(self) -> int:
        """Number of images whose class has no mask file while another class has: their true mask is empty."""
        return sum(image.pixels is not None and not image.row.mask for image in self.images)

    @property
    def with_warnings(self) -> int | None:
        """Number of images that are unlike the training images or have another fault; None: not known."""
        judgements = [image.judgement for image in self.images if image.judgement is not None]
        return sum(bool(each.warnings) for each in judgements) if judgements else None

    def as_dict(self) -> dict[str, object]:
        """Content of the `--json` file: scores at the top level, intervals and per-image results nested."""
        return {
            "split": self.split,
            "images": len(self.images),
            "images_with_mask": sum(bool(image.row.mask) for image in self.images),
            "images_taken_as_empty": self.taken_as_empty,
            "binarise": self.binarise,
            "threshold": THRESHOLD,
            "temperature": self.temperature,
            "images_with_warnings": self.with_warnings,
            **{name: score.value for name, score in self.scores.items()},
            "interval_95": {name: [score.low, score.high] for name, score in self.scores.items()},
            "pixel_confusion": self.confusion,
            "per_image": [image_record(image) for image in self.images],
            "failures": self.failures,
            "made_with": self.made_with,
        }

    def __repr__(self) -> str:
        """The scores as an aligned table, all in percent."""
        with_mask = sum(bool(image.row.mask) for image in self.images)
        lines = [f"{self.split}: {len(self.images)} images, {with_mask} with a mask (percent, 95 % interval)"]
        for name, score in self.scores.items():
            percent = 100 if name in SHARES else 1
            value, low, high = percent * score.value, percent * score.low, percent * score.high
            lines.append(f"  {score_title(name):24} {value:6.2f}   [{low:6.2f}, {high:6.2f}]")
        if self.temperature != 1:
            lines.append(f"  probabilities are calibrated with temperature {self.temperature:.2f}")
        if self.with_warnings is not None:
            lines.append(f"  {self.with_warnings} of {len(self.images)} images have warnings (unlike training)")
        if self.taken_as_empty:
            lines.append(f"  {self.taken_as_empty} images of a class without masks have an empty true mask")
        if self.confusion is None:
            lines.append("  no masks: classification only")
        else:
            tn, fp, fn, tp = self.confusion.values()
            hit, correct = 100 * tp / max(tp + fn, 1), 100 * tn / max(tn + fp, 1)
            lines.append(f"  pixels: {hit:.1f} % of the foreground found, {correct:.1f} % of the background excluded")
        return "\n".join(lines)


def evaluate(
    model: Predictor,
    manifest: Manifest,
    split: str,
    watch: Callable[[Row, Prediction, np.ndarray | None], None] = lambda *_: None,
    binarise: Binarisation = "threshold",
    progress: Progress = SILENT,
) -> Evaluation:
    """Predict every image of a split and compute the scores.

    A class without mask files has empty true masks if another class of the split has some (Camelyon16's convention).
    A split without any mask is evaluated by classification alone.

    Args:
        model: a trained or an exported model.
        manifest: images, labels and masks.
        split: the split to evaluate.
        watch: called with each row, its prediction and its true mask, for example to draw them.
        binarise: how soft masks are binarised.
        progress: counts the images.
    """
    refuse_shared_patients(manifest, manifest.root)
    part = manifest.split(split)
    if not part.rows:
        present = sorted({row.split for row in manifest.rows})
        raise DataError(f"the manifest has no image in split '{split}'; it has: {', '.join(present)}")
    unknown = {row.label for row in part.rows} - set(model.classes)
    if unknown:
        raise DataError(f"label '{sorted(unknown)[0]}' is not a class of the model, which has {model.classes}")
    results, failures, freed = [], [], FreedMemory()
    for row in progress.track(part.rows, f"evaluating {split}"):
        try:
            path = part.image_path(row)
            image = read_image(path)
            refuse_unusable(image, path)
            truth = true_mask(part, row, image.shape[:2])
        except ImageError as error:
            failures.append(str(error))
            continue
        prediction = model.predict(image)
        freed.after_prediction()
        watch(row, prediction, truth)
        mask = prediction.mask if binarise == "threshold" else prediction.mask_by_label(row.label)
        pixels = None if truth is None else metrics.count_pixels(prediction.soft_mask, truth, mask)
        answer = prediction.label, prediction.probability, prediction.probabilities
        results.append(ImageResult(row, *answer, float(mask.mean()), pixels, prediction.judgement))
    if not results:
        raise DataError(f"no image of split '{split}' could be read; first problem: {failures[0]}")
    scores = _scores(results, model.temperature, with_error=model.classifies)
    made_with = {"histolumen": version("histolumen"), "model": model.identity, "manifest": manifest.digest}
    confusion = _confusion(results)
    return Evaluation(split, binarise, scores, confusion, results, failures, made_with, model.temperature)


def image_record(result: ImageResult) -> dict[str, object]:
    """One row of the per-image table; F1 and mIoU in percent, shares in [0, 1]."""
    record: dict[str, object] = {
        "image": result.row.image,
        "label": result.row.label,
        "prediction": result.prediction,
        "probability": round(result.probability, 6),
        **{f"p_{name}": round(value, 6) for name, value in result.probabilities.items()},
        "wrong": int(result.wrong),
        "foreground_share": round(result.predicted_share, 6),
        **judgement_columns(result.judgement),
    }
    pixels = result.pixels
    if pixels is not None:
        record["true_foreground_share"] = round(pixels.true_share, 6)
        for name, value in (("f1_plus", pixels.f1_plus), ("f1_minus", pixels.f1_minus), ("miou", pixels.miou)):
            record[name] = None if np.isnan(value) else round(100 * value, 3)
    return record


def true_mask(part: Manifest, row: Row, size: tuple[int, ...]) -> np.ndarray | None:
    """The true mask [H, W] of an image of `size`, empty for a class without lesions; None if unknown."""
    path = part.mask_path(row)
    if path is not None:
        return read_mask(path, (size[0], size[1]))
    return np.zeros(size[:2], bool) if part.knows_mask(row) else None


def _scores(results: list[ImageResult], temperature: float, *, with_error: bool) -> dict[str, Score]:
    counts = [result.pixels for result in results if result.pixels is not None]
    per_image = {"error": [float(result.wrong) for result in results]} if with_error else {}
    if counts:
        per_image |= {
            "f1_plus": [c.f1_plus for c in counts],
            "f1_minus": [c.f1_minus for c in counts],
            "miou": [c.miou for c in counts],
            "predicted_foreground_share": [c.predicted_share for c in counts],
            "true_foreground_share": [c.true_share for c in counts],
        }
    scores: dict[str, Score] = {}
    for name, values in per_image.items():
        score = metrics.bootstrap(len(values), metrics.weighted_mean(np.array(values)))
        scores[name] = score if name in SHARES else _percent(score)
        if name == "error":
            scores |= _classification_scores(results, temperature)
        if name == "f1_minus":
            pooled = metrics.pooled_average_precision(counts)
            scores["pxap"] = _percent(metrics.bootstrap(len(counts), pooled))
    return scores


def _classification_scores(results: list[ImageResult], temperature: float) -> dict[str, Score]:
    """Balanced accuracy, the recall of each class, area under the ROC curve and calibration error, in percent."""
    names = list(results[0].probabilities)
    labels = np.array([names.index(result.row.label) for result in results])
    probabilities = np.array([list(result.probabilities.values()) for result in results])
    predicted = np.array([names.index(r.prediction) if r.prediction in names else -1 for r in results])
    statistics = {"balanced_accuracy": metrics.balanced_accuracy(labels, predicted)}
    for label in np.unique(labels):
        statistics[f"{_RECALL}{names[label]}"] = metrics.class_recall(labels, predicted, label)
    statistics["auc"] = metrics.roc_auc(labels, probabilities)
    statistics["ece"] = metrics.calibration_error(predicted == labels, probabilities.max(1))
    if temperature != 1:
        before = with_temperature(probabilities, 1 / temperature)
        statistics["ece_uncalibrated"] = metrics.calibration_error(predicted == labels, before.max(1))
    return {name: _percent(metrics.bootstrap(len(results), each)) for name, each in statistics.items()}


def score_title(name: str) -> str:
    """Name of a score in tables."""
    return _TITLES.get(name) or f"recognised of {name.removeprefix(_RECALL)}"


def _percent(score: Score) -> Score:
    return Score(100 * score.value, 100 * score.low, 100 * score.high)


def _confusion(results: list[ImageResult]) -> dict[str, int] | None:
    counts = [result.pixels.confusion for result in results if result.pixels is not None]
    if not counts:
        return None
    names = ("true_negative", "false_positive", "false_negative", "true_positive")
    return {name: int(value) for name, value in zip(names, np.sum(counts, axis=0), strict=True)}
