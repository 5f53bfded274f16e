"""Validation after each epoch, by labels alone: no mask is read here."""

import math
from dataclasses import asdict, dataclass

import torch
from lightning_fabric import Fabric

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import ImageSettings
from histolumen.engine.model import predict_images
from histolumen.methods.base import Method


@dataclass(frozen=True)
class Validation:
    """Scores of an epoch on the validation split.

    Error in percent and cross-entropy in nats, None for methods that do not classify; mean and standard deviation of
    the foreground share over images, in [0, 1]. The pixel cross-entropy comes from `engine/supervised.py`, for U-Net.
    """

    error: float | None
    cross_entropy: float | None
    foreground_share: float
    foreground_spread: float
    pixel_cross_entropy: float | None = None

    def as_dict(self) -> dict[str, float]:
        """The defined scores, for metrics.jsonl and model.json."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def validate(
    fabric: Fabric, method: Method, manifest: Manifest, classes: list[str], settings: ImageSettings
) -> Validation | None:
    """Evaluate the validation split, divided among the processes; None if the manifest has none."""
    valid = manifest.split("valid")
    if not valid.rows:
        return None
    method.eval()
    settings = settings.model_copy(update={"test_flips": False})  # one pass is enough to select an epoch
    sums = torch.zeros(4, dtype=torch.float64, device=fabric.device)
    for row in valid.rows[fabric.global_rank :: fabric.world_size]:
        path = valid.image_path(row)
        [prediction] = predict_images(method, classes, [read_image(path)], settings, fabric.device, [str(path)])
        probability = max(prediction.probabilities[row.label], 1e-12)
        wrong, share = float(prediction.label != row.label), prediction.foreground_share
        sums += torch.tensor([wrong, -math.log(probability), share, share**2], device=fabric.device)
    total = fabric.all_reduce(sums, reduce_op="sum")
    error, cross_entropy, share, square = (torch.as_tensor(total) / len(valid.rows)).tolist()
    spread = math.sqrt(max(square - share**2, 0))
    if not method.classifies:
        return Validation(None, None, share, spread)
    return Validation(100 * error, cross_entropy, share, spread)
