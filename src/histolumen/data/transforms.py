"""Geometry and colour: how an image becomes what the network sees."""

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from histolumen.data.stain import StainJitter
from histolumen.errors import ImageError
from histolumen.settings import Settings
from histolumen.vision import tv_tensors, v2

_GRID = 16  # working sizes are multiples of this, so that ever-changing inputs do not fill oneDNN's caches
_MAX_ASPECT = 20


class ImageSettings(Settings):
    """Geometry and augmentation of the images; the defaults are the paper's for GlaS."""

    short_side: int | None = Field(default=432, ge=32)
    """Images are resized so that their short side has this many pixels, aspect kept; null: original resolution."""
    mpp: float | None = Field(default=None, gt=0)
    """Microns per pixel of the image files; null: not known. Slides are read at the resolution that this and
    `short_side` give."""
    crop: int = Field(default=416, ge=32)
    """Side of the random square cut out for training; whole images are used for validation and prediction."""
    jitter: tuple[float, float, float, float] = (0.5, 0.5, 0.5, 0.05)
    """Random brightness, contrast, saturation and hue, as in torchvision's ColorJitter."""
    stain: float = Field(default=0.0, ge=0, lt=1)
    """Random amounts of haematoxylin, eosin and residual stain in training: each is multiplied by 1 +- this."""
    flips: bool = True
    """Random horizontal and vertical flips in training."""
    quarter_turns: bool = True
    """Random rotations by 0, 90, 180 or 270 degrees in training."""
    test_flips: bool = False
    """Answer with the mean over the image and its three flips; four times the work of a prediction."""
    cache_mb: int = Field(default=2000, ge=0)
    """Memory for decoded training images, in megabytes; beyond it images are read again each epoch."""

    @model_validator(mode="after")
    def _crop_fits(self) -> "ImageSettings":
        if self.short_side is not None and self.crop > self.short_side:
            raise ValueError(f"crop {self.crop} is larger than short_side {self.short_side}")
        return self


class QuarterTurn(v2.Transform):
    """Rotate image and mask alike by a random multiple of 90 degrees."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:  # noqa: ARG002 - torchvision's signature
        return {"turns": int(torch.randint(4, ()))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return tv_tensors.wrap(torch.rot90(inpt, params["turns"], (-2, -1)), like=inpt)  # pyright: ignore[reportCallIssue]


def refuse_narrow(size: tuple[int, ...], path: Path | None = None) -> None:
    """Raise for images (of this height and width) whose long side would become enormous as the short one grows."""
    height, width = size[:2]
    if max(height, width) > _MAX_ASPECT * min(height, width):
        raise ImageError(
            f"{path or 'image'}: {width} x {height} pixels is too narrow (aspect over {_MAX_ASPECT}); crop it first"
        )


def working_size(height: int, width: int, settings: ImageSettings, path: Path | None = None) -> tuple[int, int]:
    """Height and width at which the network sees an image: its short side as set, both sides on a grid of 16 pixels."""
    refuse_narrow((height, width), path)
    scale = 1.0 if settings.short_side is None else settings.short_side / min(height, width)
    return _on_grid(height * scale), _on_grid(width * scale)


def working_mpp(paths: Iterable[Path], settings: ImageSettings) -> float | None:
    """Microns per pixel as the network sees these images, from the sizes in their headers; None: not known.

    Images of several sizes are scaled differently: the median stands for them.
    """
    if settings.mpp is None or settings.short_side is None:
        return settings.mpp
    scales = [_scale(size, settings, path) for path in paths if (size := _size_in_header(path))]
    return settings.mpp / median(scales) if scales else None


def to_working_size(image: np.ndarray, settings: ImageSettings, path: Path | None = None) -> Tensor:
    """RGB [H, W, 3] uint8 array -> [3, H', W'] uint8 tensor at its working size."""
    height, width = image.shape[:2]
    tensor = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
    return v2.functional.resize(tensor, list(working_size(height, width, settings, path)), antialias=True)


def to_unit_range(images: Tensor) -> Tensor:
    """uint8 -> float in [0, 1]."""
    return images.float() / 255


def training_transform(settings: ImageSettings) -> v2.Transform:
    """Random crop, colour, flips and turns for images at their working size (and masks, where there are any)."""
    steps: list[Any] = [v2.RandomCrop(settings.crop, pad_if_needed=True, padding_mode="reflect")]
    if any(settings.jitter):
        brightness, contrast, saturation, hue = settings.jitter
        steps.append(v2.ColorJitter(brightness, contrast, saturation, hue))
    if settings.stain:
        steps.append(StainJitter(settings.stain))
    if settings.flips:
        steps += [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()]
    if settings.quarter_turns:
        steps.append(QuarterTurn())
    return v2.Compose(steps)


def _on_grid(side: float) -> int:
    return max(32, _GRID * math.floor(side / _GRID + 0.5))


def _scale(size: tuple[int, int], settings: ImageSettings, path: Path) -> float:
    """Working size / original size: the geometric mean of both sides, which the grid rounds differently."""
    height, width = working_size(*size, settings, path)
    return math.sqrt(height * width / (size[0] * size[1]))


def _size_in_header(path: Path) -> tuple[int, int] | None:
    """Height and width without decoding; None where reading the image itself will say what is wrong with it."""
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except (OSError, ValueError, SyntaxError):
        return None
