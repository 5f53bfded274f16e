"""Class probabilities on the two regions of a prediction: X+ (the mask) and X- (the rest)."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.data.transforms import to_unit_range, to_working_size
from histolumen.encoders.batchnorm import Case
from histolumen.encoders.geometry import FLIPS
from histolumen.engine.model import Model
from histolumen.engine.prediction import Prediction
from histolumen.engine.windows import runner_for
from histolumen.lanes import side_by_side
from histolumen.methods.base import MapRunner, Method


class RegionProbabilities(NamedTuple):
    """Probability of each class, by name, on X+ = X * M and on X- = X * (1 - M)."""

    plus: dict[str, float]
    minus: dict[str, float]


@torch.inference_mode()
def region_probabilities(model: Model, prediction: Prediction) -> RegionProbabilities:
    """Classify the image of `prediction` twice: with its background and with its foreground masked out.

    A mask that shows what decided gives a certain answer on X+ and an uncertain one on X-. Max-Min is trained for both;
    other methods classify the masked images as they classify any image. Flips are averaged, and
    probabilities calibrated, as in `Model.predict`.
    """
    settings, method = model.config.images, model.predictor
    working = to_working_size(prediction.image, settings, Path(prediction.name), method.backbone.size_multiple)
    pixels = method.backbone.normalise(to_unit_range(working[None]).to(model.device))
    if prediction.glass is not None:  # as in a prediction, glass has the mean colour
        glass = torch.from_numpy(prediction.glass)[None, None].to(pixels)
        pixels = pixels * (1 - F.interpolate(glass, size=pixels.shape[2:], mode="nearest-exact"))
    soft_mask = torch.from_numpy(prediction.soft_mask)[None, None].to(pixels)
    soft_mask = F.interpolate(soft_mask, size=pixels.shape[2:], mode="bilinear", align_corners=False)
    run = runner_for(method.backbone, *pixels.shape[2:])
    means = []
    for case, mask in ((Case.FOREGROUND, soft_mask), (Case.BACKGROUND, 1 - soft_mask)):
        flips = FLIPS if settings.test_flips else FLIPS[:1]
        classify = partial(_classify, method, pixels * mask, case, run)
        probs = side_by_side(classify, flips, model.device)
        mean = torch.stack(probs).mean(0)[0].tolist()
        means.append(model.calibrated(dict(zip(model.classes, mean, strict=True))))
    return RegionProbabilities(*means)


def _classify(method: Method, masked: Tensor, case: Case, run: MapRunner, axes: tuple[int, ...]) -> Tensor:
    """Probabilities of one flip."""
    return method.classify_region(masked.flip(axes), case, run)
