"""Judgement of images by the model's reference: field by field if they are much larger than the training images."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from histolumen.encoders.backbone import Backbone
from histolumen.familiarity.judgement import Judgement, judge, judge_fields
from histolumen.familiarity.reference import Reference

T = TypeVar("T")
_LARGE = 4  # times the area of a training image: larger images are judged field by field
_MOST_FIELDS = 16


def judge_image(reference: Reference | None, backbone: Backbone, pixels: np.ndarray) -> Judgement | None:
    """Judge an image, RGB [H, W, 3] uint8 at working size; None if the model does not know its training images."""
    if reference is None:
        return None
    height, width = (min(side, most) for side, most in zip(reference.size, pixels.shape, strict=False))
    if pixels.shape[0] * pixels.shape[1] <= _LARGE * height * width:
        return judge(reference, reference.describe(backbone, pixels))
    corners = [
        (top, left)
        for top in range(0, pixels.shape[0] - height + 1, height)
        for left in range(0, pixels.shape[1] - width + 1, width)
    ]
    fields = [pixels[top : top + height, left : left + width] for top, left in spread(corners, _MOST_FIELDS)]
    return judge_fields(reference, [reference.describe(backbone, field) for field in fields])


def spread(items: Sequence[T], most: int) -> list[T]:
    """All items, or a regular sample of them."""
    if len(items) <= most:
        return list(items)
    return [items[index] for index in np.linspace(0, len(items) - 1, most).round().astype(int)]
