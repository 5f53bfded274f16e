"""Judgement of a slide by the model's reference, field by field."""

from dataclasses import dataclass

import numpy as np

from histolumen.encoders.backbone import Backbone
from histolumen.engine.judging import spread
from histolumen.engine.slides.maps import Canvas
from histolumen.export.regions import FoundRegion
from histolumen.familiarity.judgement import Judgement, judge_fields
from histolumen.familiarity.reference import Reference
from histolumen.slides.reader import Region, Slide
from histolumen.tissue.mask import Tissue

_FEWEST_FIELDS, _MOST_FIELDS = 16, 64  # enough for a median
_SAMPLED = 1 / 4  # share of the fields that are judged: all would cost a fifth of what the prediction does
_MIN_TISSUE = 0.5  # share of a field that is tissue


@dataclass(frozen=True)
class JudgedFields:
    """Fields of a slide, each as large as a training image, and how unlike the training images each one is."""

    centres: np.ndarray
    """x and y in pixels of the slide [n, 2]."""
    unlike: np.ndarray
    judgement: Judgement

    def around(self, region: FoundRegion, pixels_per_cell: float) -> float:
        """How unlike the training images the field nearest to a point inside a region of the heat map is."""
        inside = region.outline.representative_point()
        place = inside.x * pixels_per_cell, inside.y * pixels_per_cell
        return float(self.unlike[((self.centres - place) ** 2).sum(1).argmin()])


def judge_slide(reference: Reference | None, backbone: Backbone, canvas: Canvas) -> JudgedFields | None:
    """Judge the tissue of a slide; None if the model does not know its training images.

    Args:
        reference: of the model.
        backbone: of the model.
        canvas: the slide, its tissue and its scale.
    """
    if reference is None:
        return None
    (height, width), scale = reference.size, canvas.layout.scale
    regions = _fields(canvas.slide, canvas.tissue, height * scale, width * scale)
    described = [reference.describe(backbone, canvas.slide.read(region, (width, height), scale)) for region in regions]
    centres = np.array([(region.left + region.width / 2, region.top + region.height / 2) for region in regions])
    unlike = np.array([reference.unlike(each) for each in described])
    return JudgedFields(centres, unlike, judge_fields(reference, described))


def _fields(slide: Slide, tissue: Tissue, height: float, width: float) -> list[Region]:
    """A regular sample of the fields of the slide with mostly tissue; if none has, the one with the most."""
    every = [
        Region(left, top, width, height)
        for top in _starts(slide.height, height)
        for left in _starts(slide.width, width)
    ]
    shares = [tissue.share_of(region) for region in every]
    filled = [region for region, share in zip(every, shares, strict=True) if share >= _MIN_TISSUE]
    count = min(max(_FEWEST_FIELDS, round(_SAMPLED * len(filled))), _MOST_FIELDS)
    return spread(filled or [every[int(np.argmax(shares))]], count)


def _starts(length: float, field: float) -> np.ndarray:
    """First pixels of fields that cover a length evenly; one in the middle if it is shorter than a field."""
    count = max(1, round(length / field))
    return np.linspace(0, length - field, count) if count > 1 else np.array([(length - field) / 2])
