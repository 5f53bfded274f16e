"""The stages of a prediction: an image is prepared, run through the network, and its answer finished.

Only the middle one needs the network, so that the others can be done for further images at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.data.transforms import ImageSettings, to_unit_range, to_working_size
from histolumen.encoders.geometry import FLIPS
from histolumen.engine.prediction import Prediction, to_size
from histolumen.engine.windows import WHOLE_PIXELS, runner_for
from histolumen.methods.base import Method, predict_flipped
from histolumen.methods.view import Output
from histolumen.tissue.glass import find_glass
from histolumen.tissue.solid import MaskSettings, make_solid


@dataclass(frozen=True)
class Prepared:
    """A decoded image, the network's input, and its glass if that is removed."""

    source: str
    pixels: np.ndarray
    working: Tensor
    """[3, h, w] uint8 at working size."""
    glass: np.ndarray | None = None
    """[H, W] bool."""


def prepare(pixels: np.ndarray, source: str, settings: ImageSettings, multiple: int) -> Prepared:
    """Resize an image RGB [H, W, 3] read from `source`, and find its glass; `multiple`: `Backbone.size_multiple`."""
    working = to_working_size(pixels, settings, Path(source), multiple)
    return Prepared(source, pixels, working, find_glass(pixels) if settings.glass == "remove" else None)


@torch.inference_mode()
def run_network(method: Method, images: Sequence[Prepared], settings: ImageSettings, device: torch.device) -> Output:
    """The network's answer for images of equal size; large images are predicted in windows."""
    batch = to_unit_range(torch.stack([image.working for image in images])).to(device)
    glass = [_nearest(image.glass, batch.shape[2:]) for image in images if image.glass is not None]
    if glass:
        batch = torch.where(torch.stack(glass).to(device), method.backbone.mean, batch)
    run = runner_for(method.backbone, *batch.shape[2:])
    if not settings.test_flips:
        return method(batch, run)
    return predict_flipped(method, batch, run, together=_flips_fit(batch))


def _flips_fit(batch: Tensor) -> bool:
    """Whether flips are predicted as one batch: where it pays and memory allows. On a CPU it does not pay: activations
    of four images leave the cache."""
    return batch.device.type != "cpu" and len(FLIPS) * len(batch) * batch[0, 0].numel() <= WHOLE_PIXELS


def finish(
    image: Prepared,
    output: Output,
    k: int,
    classes: Sequence[str],
    settings: ImageSettings,
    mask: MaskSettings | None,
    *,
    classifies: bool,
) -> Prediction:
    """The prediction of image `k` of a batch, with its mask at the size of the image."""
    with torch.inference_mode():
        soft_mask = to_size(output.soft_mask[k : k + 1], image.pixels.shape[:2])
    if image.glass is not None:
        soft_mask = np.where(image.glass, 0, soft_mask).astype(soft_mask.dtype)
    return Prediction(
        probabilities=dict(zip(classes, output.probs[k].tolist(), strict=True)),
        soft_mask=soft_mask if mask is None else make_solid(soft_mask, mask, settings.mpp),
        image=image.pixels,
        evidence=None if output.evidence is None else output.evidence[k],
        name=Path(image.source).stem,
        classifies=classifies,
        mpp=settings.mpp,
        negative_class=settings.negative_class,
        glass=image.glass,
    )


def _nearest(mask: np.ndarray, size: Sequence[int]) -> Tensor:
    """A binary mask [1, h, w] of the given size."""
    resized = F.interpolate(torch.tensor(mask)[None, None].float(), size=list(size), mode="nearest-exact")
    return resized[0] > 0.5
