"""Charts, matrices and tables of an evaluation (`Evaluation.as_dict()`)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from histolumen.engine.evaluate import SHARES, score_title
from histolumen.engine.prediction import NO_TISSUE
from histolumen.metrics import PixelCounts, calibration_bins, roc_points
from histolumen.report.html.content import COLOURS, Axis, Bars, Chart, Matrix, Series
from histolumen.report.rows import Printed
from histolumen.report.tables import Table

_UNDEFINED = "--"
_PARTS = 1_000_000  # pixels of the image that stands for a share
_DIAGONAL = [(0.0, 0.0), (100.0, 100.0)]


def classes_of(evaluation: dict[str, Any]) -> list[str]:
    """Names of the classes, from the columns of the first image."""
    return [key.removeprefix("p_") for key in evaluation["per_image"][0] if key.startswith("p_")]


def scores_table(
    evaluation: dict[str, Any],
    trivial: dict[str, float],
    printed: Printed | None = None,
    notes: list[str] | None = None,
) -> Table:
    """The scores with intervals beside the trivial answer and, if it has them, the paper's."""
    paper = vars(printed) if printed else {}
    columns = ["score", "this model", "95 % interval", "trivial answer", *(["the paper's"] if paper else [])]
    rows = []
    for name, (low, high) in evaluation["interval_95"].items():
        percent = 100 if name in SHARES else 1
        value = evaluation[name]
        interval = _UNDEFINED if low is None else f"{percent * low:.1f} – {percent * high:.1f}"
        row = [score_title(name), _cell(value, percent), interval, _cell(trivial.get(name), percent)]
        rows.append([*row, *([_cell(paper.get(name), 1, ".2f")] if paper else [])])
    bold = frozenset((number, 1) for number in range(len(rows)))
    return Table("Scores in percent", columns, rows, notes or [], bold)


def trivial_scores(evaluation: dict[str, Any], most_frequent: str) -> dict[str, float]:
    """Scores of an answer without any model: every pixel is foreground (All-ones), every image the frequent class.

    Args:
        evaluation: `Evaluation.as_dict()`.
        most_frequent: the most frequent class of the training images.
    """
    images = evaluation["per_image"]
    scores: dict[str, float] = {}
    if "error" in evaluation:
        wrong = sum(image["label"] != most_frequent for image in images)
        labels = sorted({image["label"] for image in images})
        scores |= {"error": 100 * wrong / len(images), "auc": 50.0, "balanced_accuracy": 100 / len(labels)}
        scores |= {f"recall_{label}": 100.0 * (label == most_frequent) for label in labels}
    shares = [image["true_foreground_share"] for image in images if "true_foreground_share" in image]
    if shares:
        none = np.zeros(1, int)
        counts = [PixelCounts(none, none, (0, _PARTS - round(s * _PARTS), 0, round(s * _PARTS))) for s in shares]
        for name in ("f1_plus", "f1_minus", "miou"):
            values = [getattr(each, name) for each in counts]
            if np.isfinite(values).any():
                scores[name] = 100 * float(np.nanmean(values))
        pixels = evaluation["pixel_confusion"]
        foreground = pixels["false_negative"] + pixels["true_positive"]
        scores |= {"pxap": 100 * foreground / max(sum(pixels.values()), 1)}  # of a constant map: its precision
        scores |= {"predicted_foreground_share": 1.0, "true_foreground_share": float(np.mean(shares))}
    return scores


def class_matrix(evaluation: dict[str, Any]) -> Matrix:
    """True and predicted classes of the images."""
    names = classes_of(evaluation)
    pairs = Counter((image["label"], image["prediction"]) for image in evaluation["per_image"])
    predicted = [*names, *([NO_TISSUE] if any(answer == NO_TISSUE for _, answer in pairs) else [])]
    counts = [[pairs[true, answer] for answer in predicted] for true in names]
    return Matrix("Confusion of classes", names, predicted, counts, "images")


def pixel_matrix(evaluation: dict[str, Any]) -> Matrix | None:
    """True and predicted foreground of all pixels; None without masks."""
    pixels = evaluation["pixel_confusion"]
    if not pixels:
        return None
    counts = [
        [pixels["true_negative"], pixels["false_positive"]],
        [pixels["false_negative"], pixels["true_positive"]],
    ]
    names = ("background", "foreground")
    return Matrix("Confusion of pixels", names, names, counts, "pixels")


def roc_chart(evaluations: dict[str, dict[str, Any]]) -> Chart | None:
    """One ROC curve per title for two classes; for one title with more classes, each class against the rest.

    None where a curve is undefined: only one class occurs.
    """
    names = classes_of(next(iter(evaluations.values())))
    two = len(names) == 2
    wanted = names[1:] if two else names
    if not two and len(evaluations) > 1:
        return None
    series = []
    for title, evaluation in evaluations.items():
        images = evaluation["per_image"]
        for positive in wanted:
            is_positive = np.array([image["label"] == positive for image in images])
            if is_positive.all() or not is_positive.any():
                continue
            scores = np.array([image[f"p_{positive}"] for image in images])
            points = _points(*(100 * rates for rates in roc_points(is_positive, scores)))
            area = f", area {evaluation['auc']:.1f} %" if two and evaluation.get("auc") is not None else ""
            label = f"{title}{area}" if len(evaluations) > 1 else f"{positive}{area}"
            series.append(Series(label, points, stepped=True, dashed=len(series) >= COLOURS))
    if not series:
        return None
    found, others = (
        (f"{names[1]} found", f"{names[0]} called {names[1]}") if two else ("class found", "others called it")
    )
    note = "The further above the dotted diagonal (a guess), the better the classes are told apart."
    diagonal = Series("guess", _DIAGONAL, quiet=True, dashed=True)
    x, y = Axis(f"{others}, %", 0, 100), Axis(f"{found}, %", 0, 100)
    return Chart("ROC curve", x, y, [*series, diagonal], note, square=True)


def reliability_chart(evaluation: dict[str, Any]) -> Chart:
    """Accuracy over the probability of the predicted class, in ten bins."""
    images = [image for image in evaluation["per_image"] if image["probability"] > 0]
    confidence = np.array([image["probability"] for image in images])
    correct = np.array([not image["wrong"] for image in images])
    bins = calibration_bins(confidence)
    points, names, sizes = [], [], []
    for number in np.unique(bins):
        inside = bins == number
        points.append((100 * float(confidence[inside].mean()), 100 * float(correct[inside].mean())))
        names.append(f"{inside.sum()} image{'s' if inside.sum() > 1 else ''}")
        sizes.append(4 + 10 * float(np.sqrt(inside.mean())))
    error = f" Expected calibration error {evaluation['ece']:.1f} %." if evaluation.get("ece") is not None else ""
    note = f"Points on the diagonal: the probability is worth what it says. Larger points stand for more images.{error}"
    diagonal = Series("perfectly calibrated", _DIAGONAL, quiet=True, dashed=True)
    drawn = Series("images, by probability", points, line=False, names=names, sizes=sizes)
    x, y = Axis("probability of the predicted class, %", 0, 100), Axis("accuracy, %", 0, 100)
    return Chart("Calibration", x, y, [drawn, diagonal], note, square=True)


def sizes_chart(evaluation: dict[str, Any]) -> Chart | None:
    """Predicted over true foreground share of each image; None without masks."""
    images = [image for image in evaluation["per_image"] if "true_foreground_share" in image]
    if not images:
        return None
    series = [
        Series(
            label,
            [(100 * image["true_foreground_share"], 100 * image["foreground_share"]) for image in own],
            line=False,
            names=[image["image"] for image in own],
        )
        for label in classes_of(evaluation)
        if (own := [image for image in images if image["label"] == label])
    ]
    note = "One point per image. Above the diagonal the mask is too large, below it too small."
    diagonal = Series("equal size", _DIAGONAL, quiet=True, dashed=True)
    x, y = Axis("true foreground, % of the image", 0, 100), Axis("predicted foreground, %", 0, 100)
    return Chart("Region sizes", x, y, [*series, diagonal], note, square=True)


def histogram(title: str, values: dict[str, list[float]], x_title: str, y_title: str, note: str = "") -> Bars:
    """Counts of shares in ten bins of [0, 1], stacked by name."""
    bins = [f"{10 * number}–{10 * number + 10}" for number in range(10)]
    counts: dict[str, Sequence[float | None]] = {
        name: [float(n) for n in np.bincount(calibration_bins(np.array(each)), minlength=10)]
        for name, each in values.items()
        if each
    }
    return Bars(title, bins, counts, x_title, y_title, note, stacked=True)


def _points(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(x, y, strict=True)]


def _cell(value: float | None, percent: float, pattern: str = ".1f") -> str:
    return _UNDEFINED if value is None else format(percent * value, pattern)
