"""Judging an epoch by labels alone: no mask is read here, whatever the manifest holds."""

import math
from dataclasses import asdict, dataclass

import torch
from lightning_fabric import Fabric

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import ImageSettings
from histolumen.engine.model import predict_image
from histolumen.methods.base import Method


@dataclass(frozen=True)
class Validation:
    """Error in percent and cross-entropy in nats, of methods that classify; mean and standard deviation of the
    foreground shares in percent."""

    error: float | None
    cross_entropy: float | None
    foreground_share: float
    foreground_spread: float

    def as_dict(self) -> dict[str, float]:
        """For metrics.jsonl and model.json."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def validate(
    fabric: Fabric, method: Method, manifest: Manifest, classes: list[str], settings: ImageSettings
) -> Validation | None:
    """Predict the validation split, shared among the processes; None where there is no such split."""
    valid = manifest.split("valid")
    if not valid.rows:
        return None
    method.eval()
    settings = settings.model_copy(update={"test_flips": False})  # an epoch is judged by one look at each image
    sums = torch.zeros(4, dtype=torch.float64, device=fabric.device)
    for row in valid.rows[fabric.global_rank :: fabric.world_size]:
        path = valid.image_path(row)
        prediction = predict_image(method, classes, read_image(path), settings, fabric.device, path)
        probability = max(prediction.probabilities[row.label], 1e-12)
        wrong, share = float(prediction.label != row.label), prediction.foreground_share
        sums += torch.tensor([wrong, -math.log(probability), share, share**2], device=fabric.device)
    total = fabric.all_reduce(sums, reduce_op="sum")
    error, cross_entropy, share, square = (torch.as_tensor(total) / len(valid.rows)).tolist()
    spread = 100 * math.sqrt(max(square - share**2, 0))
    if not method.classifies:
        return Validation(None, None, 100 * share, spread)
    return Validation(100 * error, cross_entropy, 100 * share, spread)
