"""What quantisation changes on validation images."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from histolumen.data.manifest import Manifest, Row
from histolumen.deploy.card import Card
from histolumen.deploy.exported import ExportedModel
from histolumen.deploy.runtimes import open_session
from histolumen.engine.evaluate import Evaluation, evaluate
from histolumen.engine.prediction import Prediction
from histolumen.errors import RunError
from histolumen.progress import SILENT, Progress

SPLIT = "valid"
MAX_LOSS = 1.0
"""Largest fall of F1+ or F1-, in points of percent, that is written without being asked for."""
_SCORES = {"f1_plus": "F1+", "f1_minus": "F1-", "error": "error"}


@dataclass(frozen=True)
class QualityChange:
    """Scores before and after quantisation in percent, and how far both models agree."""

    images: int
    before: dict[str, float]
    """`f1_plus` and `f1_minus` where the manifest has masks, `error` where the method classifies."""
    after: dict[str, float]
    mask_agreement: float
    """F1 between the masks of both models, in percent: the mean over images."""
    class_agreement: float
    """Images to which both models give the same class, in percent."""

    @property
    def loss(self) -> float:
        """The larger fall of F1+ and F1-, in points; without masks, what the agreement lacks."""
        falls = [self.before[name] - self.after[name] for name in ("f1_plus", "f1_minus") if name in self.before]
        return max(falls, default=100 - self.mask_agreement)

    def on_card(self, card: Card) -> Card:
        """The card of the quantised model."""
        record = {
            "images": self.images,
            "split": SPLIT,
            "single_precision": self.before,
            "int8": self.after,
            "mask_agreement": self.mask_agreement,
            "class_agreement": self.class_agreement,
        }
        return replace(card, precision="int8", int8=record)

    def __str__(self) -> str:
        parts = [
            f"{_SCORES[name]} {value:.2f} -> {self.after[name]:.2f} ({self.after[name] - value:+.2f})"
            for name, value in self.before.items()
        ]
        parts.append(f"masks agree by {self.mask_agreement:.2f}, classes by {self.class_agreement:.2f}")
        return f"int8 on {self.images} validation images, percent: {', '.join(parts)}"


def measure_change(before: Path, after: Path, manifest: Manifest, progress: Progress = SILENT) -> QualityChange:
    """Evaluate two exported models on the validation images of a manifest."""
    masks: dict[str, np.ndarray] = {}
    classes: dict[str, str] = {}
    agreement: list[float] = []
    same: list[bool] = []

    def remember(row: Row, prediction: Prediction, _truth: np.ndarray | None) -> None:
        masks[row.image], classes[row.image] = np.packbits(prediction.mask), prediction.label

    def compare(row: Row, prediction: Prediction, _truth: np.ndarray | None) -> None:
        shape = prediction.mask.shape
        first = np.unpackbits(masks[row.image], count=shape[0] * shape[1]).reshape(shape).astype(bool)
        agreement.append(_dice(first, prediction.mask))
        same.append(classes[row.image] == prediction.label)

    results = [
        evaluate(ExportedModel(open_session(path)), manifest, SPLIT, watch, progress=progress)
        for path, watch in ((before, remember), (after, compare))
    ]
    old, new = (_scores(result) for result in results)
    return QualityChange(len(same), old, new, 100 * float(np.mean(agreement)), 100 * float(np.mean(same)))


def refuse_loss(change: QualityChange) -> None:
    """Raise an error if the quantised masks are worse by more than `MAX_LOSS`."""
    if change.loss > MAX_LOSS:
        raise RunError(
            f"{change}: a loss of {change.loss:.2f} points of F1, more than {MAX_LOSS:g}; nothing is written. "
            "Calibrate with more images, or add --accept-loss"
        )


def _dice(first: np.ndarray, second: np.ndarray) -> float:
    """F1 between two masks; two empty ones are equal."""
    total = int(first.sum()) + int(second.sum())
    return 2 * int((first & second).sum()) / total if total else 1.0


def _scores(result: Evaluation) -> dict[str, float]:
    return {name: result.scores[name].value for name in _SCORES if name in result.scores}
