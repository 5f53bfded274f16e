"""Measuring a model on a split: labels always, pixels where there are masks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from histolumen import metrics
from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import Manifest, Row
from histolumen.data.transforms import refuse_narrow
from histolumen.engine.model import THRESHOLD, Model, Prediction
from histolumen.errors import DataError, ImageError
from histolumen.metrics import PixelCounts, Score

Binarisation = Literal["honest", "paper"]
"""`honest`: the soft mask at 0.5. `paper`: how the paper binarised its rivals, which looks at the true label."""


@dataclass(frozen=True)
class ImageResult:
    """One evaluated image; `pixels` only where its true mask is known."""

    row: Row
    prediction: str
    probability: float
    predicted_share: float
    pixels: PixelCounts | None

    @property
    def wrong(self) -> bool:
        """Whether the class is not the true one."""
        return self.prediction != self.row.label


@dataclass(frozen=True)
class Evaluation:
    """Scores in percent with 95 % intervals, what they rest on, and what had to be left out."""

    split: str
    binarise: Binarisation
    scores: dict[str, Score]
    confusion: dict[str, int] | None
    images: list[ImageResult]
    failures: list[str] = field(default_factory=list)

    @property
    def taken_as_empty(self) -> int:
        """Images whose class has no masks at all although another class has: their true mask is empty."""
        return sum(image.pixels is not None and not image.row.mask for image in self.images)

    def as_dict(self) -> dict[str, object]:
        """For `--json`: values at the top level, intervals and per-image results below."""
        return {
            "split": self.split,
            "images": len(self.images),
            "images_with_mask": sum(bool(image.row.mask) for image in self.images),
            "images_taken_as_empty": self.taken_as_empty,
            "binarise": self.binarise,
            "threshold": THRESHOLD,
            **{name: score.value for name, score in self.scores.items()},
            "interval_95": {name: [score.low, score.high] for name, score in self.scores.items()},
            "pixel_confusion": self.confusion,
            "per_image": [image_record(image) for image in self.images],
            "failures": self.failures,
        }


def evaluate(
    model: Model,
    manifest: Manifest,
    split: str,
    track: Callable[[tuple[Row, ...]], Iterable[Row]] = lambda rows: rows,
    watch: Callable[[Row, Prediction, np.ndarray | None], None] = lambda *_: None,
    binarise: Binarisation = "honest",
) -> Evaluation:
    """Predict and measure every image of a split.

    A normal image without mask file has an empty true mask when other images of the split have one (Camelyon16's
    convention); a split without any mask is measured by labels alone.

    Args:
        model: a trained model.
        manifest: images, labels and masks.
        split: which part of it.
        track: wraps the rows to show progress.
        watch: is shown each prediction, for example to draw it.
        binarise: how soft masks become binary ones.
    """
    part = manifest.split(split)
    if not part.rows:
        present = sorted({row.split for row in manifest.rows})
        raise DataError(f"the manifest has no image in split '{split}'; it has: {', '.join(present)}")
    unknown = {row.label for row in part.rows} - set(model.classes)
    if unknown:
        raise DataError(f"label '{sorted(unknown)[0]}' is not known to the model, whose classes are {model.classes}")
    results, failures = [], []
    for row in track(part.rows):
        try:
            path = part.image_path(row)
            image = read_image(path)
            refuse_narrow(image.shape, path)
            truth = true_mask(part, row, image.shape[:2])
        except ImageError as error:
            failures.append(str(error))
            continue
        prediction = model.predict(image)
        watch(row, prediction, truth)
        mask = prediction.mask if binarise == "honest" else prediction.mask_by_label(row.label)
        pixels = None if truth is None else metrics.count_pixels(prediction.soft_mask, truth, mask)
        probability = prediction.probabilities[prediction.label]
        results.append(ImageResult(row, prediction.label, probability, float(mask.mean()), pixels))
    if not results:
        raise DataError(f"no image of split '{split}' could be read; first problem: {failures[0]}")
    scores = _scores(results, with_error=model.classifies)
    return Evaluation(split, binarise, scores, _confusion(results), results, failures)


def image_record(result: ImageResult) -> dict[str, object]:
    """One line of the per-image table; scores in percent."""
    record: dict[str, object] = {
        "image": result.row.image,
        "label": result.row.label,
        "prediction": result.prediction,
        "probability": round(result.probability, 6),
        "wrong": int(result.wrong),
        "foreground_share": round(100 * result.predicted_share, 3),
    }
    pixels = result.pixels
    if pixels is not None:
        record["true_foreground_share"] = round(100 * pixels.true_share, 3)
        for name, value in (("f1_plus", pixels.f1_plus), ("f1_minus", pixels.f1_minus), ("miou", pixels.miou)):
            record[name] = None if np.isnan(value) else round(100 * value, 3)
    return record


def true_mask(part: Manifest, row: Row, size: tuple[int, ...]) -> np.ndarray | None:
    """The true foreground [H, W] of an image of `size`, empty for a class without lesion; None where it is unknown."""
    path = part.mask_path(row)
    if path is not None:
        return read_mask(path, (size[0], size[1]))
    return np.zeros(size[:2], bool) if part.knows_mask(row) else None


def _scores(results: list[ImageResult], *, with_error: bool) -> dict[str, Score]:
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
    scores = {}
    for name, values in per_image.items():
        scores[name] = _percent(metrics.bootstrap(len(values), metrics.weighted_mean(np.array(values))))
        if name == "f1_minus":
            pooled = metrics.pooled_average_precision(counts)
            scores["pxap"] = _percent(metrics.bootstrap(len(counts), pooled))
    return scores


def _percent(score: Score) -> Score:
    return Score(100 * score.value, 100 * score.low, 100 * score.high)


def _confusion(results: list[ImageResult]) -> dict[str, int] | None:
    counts = [result.pixels.confusion for result in results if result.pixels is not None]
    if not counts:
        return None
    names = ("true_negative", "false_positive", "false_negative", "true_positive")
    return {name: int(value) for name, value in zip(names, np.sum(counts, axis=0), strict=True)}
