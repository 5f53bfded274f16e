"""Resizing and augmentation: from a decoded image to the network input."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from histolumen.data.image import FORMATS, MAX_PIXELS
from histolumen.data.stain import StainJitter
from histolumen.errors import ConfigError, ImageError, nearest
from histolumen.settings import Settings
from histolumen.vision import tv_tensors, v2

SIZE_MULTIPLE = 16
"""Working sizes are multiples of this even for networks that take any size: oneDNN caches buffers for each size."""
MIN_SIDE = 32
"""Working sizes are at least this, rounded up to a multiple."""
_MAX_ASPECT = 20
_NEARLY_SQUARE = 1.05  # largest aspect of images that a square resize does not distort
_MIN_INPUT_SIDE = 8  # pixels; smaller images have no structure to learn from or to answer by
_PLAIN_RANGE = 3  # levels per channel up to which an image is one colour, after compression too


class ImageSettings(Settings):
    """Geometry and augmentation of the images; the defaults are the paper's for GlaS."""

    short_side: int | None = Field(default=432, ge=32, le=8192)
    """Images are resized so that their short side has this many pixels; null: original resolution."""
    resize: Literal["short_side", "square"] = "short_side"
    """`short_side` keeps the aspect. `square` resizes the whole image to `short_side` x `short_side` pixels, as the
    paper's "resized to 416 x 416" says; masks are returned at the size of the image. Images that are not square are
    distorted and have no single resolution: slides then need --model-mpp."""
    mpp: float | None = Field(default=None, gt=0, le=100)
    """Microns per pixel of the image files; null: unknown. Slides are read at the resolution that follows from this
    and `short_side`."""
    glass: Literal["keep", "remove"] = "keep"
    """Bare glass beside the tissue, that is white fields that reach the border of the image: `keep` it as a part of the
    image (the paper), or `remove` it: networks see the mean colour instead, and it is background in every mask."""
    negative_class: str | None = None
    """The class whose images have no foreground (normal tissue); null: every class has some. Masks then show evidence
    for the other classes only, whatever the predicted or true class, and may be empty."""
    crop: int = Field(default=416, ge=32, le=8192)
    """Side of the random training crop, rounded down to a multiple of 16, or of the patch size of a vision transformer.
    Validation and prediction use whole images."""
    jitter: tuple[float, float, float, float] = (0.5, 0.5, 0.5, 0.05)
    """Random brightness, contrast, saturation and hue, as in torchvision's ColorJitter."""
    stain: float = Field(default=0.0, ge=0, lt=1)
    """Stain augmentation: the amounts of haematoxylin, eosin and residual stain are multiplied by random 1 +- this."""
    flips: bool = True
    """Random horizontal and vertical flips in training."""
    quarter_turns: bool = True
    """Random rotations by 0, 90, 180 or 270 degrees in training."""
    test_flips: bool = False
    """Average predictions over the image and its three flips; prediction takes four times as long."""
    cache_mb: int = Field(default=2000, ge=0)
    """Memory for decoded training images, in megabytes; images that do not fit are decoded again each epoch."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> "ImageSettings":
        if self.short_side is not None and self.crop > self.short_side:
            raise ValueError(f"crop {self.crop} is larger than short_side {self.short_side}")
        if self.resize == "square" and self.short_side is None:
            raise ValueError("resize=square needs the side of the square in short_side")
        return self

    def negative_index(self, classes: Sequence[str]) -> int | None:
        """Index of the negative class among the names of all classes; None: every class has foreground."""
        if self.negative_class is None:
            return None
        if self.negative_class not in classes:
            raise ConfigError(
                f"images.negative_class: no class '{self.negative_class}'; {nearest(self.negative_class, classes)}"
            )
        return list(classes).index(self.negative_class)


class QuarterTurn(v2.Transform):
    """Rotate image and mask together by a random multiple of 90 degrees."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:  # noqa: ARG002 - torchvision's signature
        return {"turns": int(torch.randint(4, ()))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return tv_tensors.wrap(torch.rot90(inpt, params["turns"], (-2, -1)), like=inpt)  # pyright: ignore[reportCallIssue]


def refuse_unusable(image: np.ndarray, path: Path | None = None) -> None:
    """Raise an error for an image [H, W, 3] that no answer can be based on: tiny, very narrow, one colour."""
    height, width = image.shape[:2]
    refuse_narrow(image.shape, path)
    if min(height, width) < _MIN_INPUT_SIDE:
        raise ImageError(
            f"{path or 'image'}: {width} x {height} pixels is too small (a side under {_MIN_INPUT_SIDE}) to classify"
        )
    if _is_plain(image[::16, ::16]) and _is_plain(image):  # few images need the second, slower look
        raise ImageError(f"{path or 'image'}: one plain colour, there is nothing to classify; leave it out")


def _is_plain(image: np.ndarray) -> bool:
    return bool((np.ptp(image.reshape(-1, image.shape[2]), axis=0) <= _PLAIN_RANGE).all())


def refuse_narrow(size: tuple[int, ...], path: Path | None = None) -> None:
    """Raise an error for very narrow images: resizing their short side would make the long side enormous."""
    height, width = size[:2]
    if max(height, width) > _MAX_ASPECT * min(height, width):
        raise ImageError(
            f"{path or 'image'}: {width} x {height} pixels is too narrow (aspect over {_MAX_ASPECT}); crop it first"
        )


def working_size(
    height: int, width: int, settings: ImageSettings, path: Path | None = None, multiple: int = SIZE_MULTIPLE
) -> tuple[int, int]:
    """Height and width of the network input: as `images.resize` says, rounded to multiples of `multiple`.

    Args:
        height: of the image.
        width: of the image.
        settings: defines the short side, or the square.
        path: of the image, for the error message.
        multiple: `Backbone.size_multiple`.
    """
    refuse_narrow((height, width), path)
    if settings.resize == "square" and settings.short_side is not None:
        height = width = settings.short_side
    short_side, shortest = (1, 1) if settings.short_side is None else (settings.short_side, min(height, width))
    size = _to_multiple(height * short_side, shortest, multiple), _to_multiple(width * short_side, shortest, multiple)
    if size[0] * size[1] > MAX_PIXELS:
        raise ImageError(
            f"{path or 'image'}: {width} x {height} pixels become {size[1]} x {size[0]} with "
            f"images.short_side={settings.short_side}, over the limit of {MAX_PIXELS:,}; lower it or cut the image"
        )
    return size


def fitting_crop(settings: ImageSettings, multiple: int) -> int:
    """Side of training crops: as set, rounded down to a multiple of `multiple`."""
    return max(settings.crop - settings.crop % multiple, multiple)


def working_mpp(paths: Iterable[Path], settings: ImageSettings, multiple: int = SIZE_MULTIPLE) -> float | None:
    """Microns per pixel of the network input, from the sizes in the image headers; None if unknown.

    Images of different sizes are scaled differently: the median scale is used. Images that are distorted to a square
    have no single resolution.
    """
    if settings.mpp is None or settings.short_side is None:
        return settings.mpp
    sizes = [(path, size) for path in paths if (size := _size_in_header(path))]
    if not sizes:
        return None
    if settings.resize == "square" and median(max(size) / min(size) for _, size in sizes) > _NEARLY_SQUARE:
        return None
    return settings.mpp / median(_scale(size, settings, path, multiple) for path, size in sizes)


def to_working_size(
    image: np.ndarray, settings: ImageSettings, path: Path | None = None, multiple: int = SIZE_MULTIPLE
) -> Tensor:
    """RGB [H, W, 3] uint8 array -> [3, H', W'] uint8 tensor at its working size."""
    height, width = image.shape[:2]
    tensor = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
    size = working_size(height, width, settings, path, multiple)
    return v2.functional.resize(tensor, list(size), antialias=True)


def to_unit_range(images: Tensor) -> Tensor:
    """uint8 -> float in [0, 1]."""
    return images.float() / 255


def training_transform(settings: ImageSettings) -> v2.Transform:
    """Random crop, colour, flips and rotations for images at their working size, and for their masks."""
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


def _to_multiple(numerator: int, denominator: int, multiple: int) -> int:
    """The multiple nearest to numerator / denominator, but not smaller than the minimum side; a half is rounded up.

    In whole numbers: in floating point a half would fall to either side, and differently in an exported graph.
    """
    nearest_multiple = (2 * numerator + denominator * multiple) // (2 * denominator * multiple)
    return multiple * max(math.ceil(MIN_SIDE / multiple), nearest_multiple)


def _scale(size: tuple[int, int], settings: ImageSettings, path: Path, multiple: int) -> float:
    """Working size / original size: the geometric mean of both sides, whose rounding differs."""
    height, width = working_size(*size, settings, path, multiple)
    return math.sqrt(height * width / (size[0] * size[1]))


def _size_in_header(path: Path) -> tuple[int, int] | None:
    """Height and width without decoding; None for unreadable images, which decoding will report."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            return image.height, image.width
    except Exception:  # noqa: BLE001 - damaged headers raise anything
        return None
