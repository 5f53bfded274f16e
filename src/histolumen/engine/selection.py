"""Which epoch of a run is the best, by `train.select`."""

import math
from dataclasses import dataclass, replace

from histolumen.engine.validate import Validation


@dataclass(frozen=True)
class TrainingState:
    """Finished epochs of a run, and the best of them by `train.select`."""

    epochs: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf

    def after(self, epoch: int, score: float) -> "TrainingState":
        """Add a finished epoch; of equal scores the latest is the best (the paper's rule)."""
        if score >= self.best_score:
            return TrainingState(epoch + 1, epoch + 1, score)
        return replace(self, epochs=epoch + 1)


def epoch_score(rule: str, epoch: int, validation: Validation | None) -> float:
    """Score of an epoch by `train.select`; higher is better."""
    name = "error" if rule == "accuracy" else rule
    loss = None if rule == "last" or validation is None else getattr(validation, name)
    return float(epoch) if loss is None else -loss
