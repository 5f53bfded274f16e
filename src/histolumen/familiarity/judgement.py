"""The judgement of one image, or of many fields of a slide: how unlike the training images, and what is wrong."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from histolumen.familiarity.reference import Description, Reference, rgb_of

NOT_KNOWN = (
    "note: not known whether this is like the training images: the model was trained by an earlier version, which "
    "`train --resume` with the same recipe completes, or on fewer than five images, or exported"
)
"""Said for a model without a reference."""
NOT_COMPARED = "note: not compared with the training images: an exported file does not know them; use the run folder"
"""Said for an exported model."""
_GREY = 5.0  # units of CIELAB: a mean colour nearer to grey has no hue
_MOST = 0.5  # share of the fields of a slide that must have a fault before the slide is said to have it
_MANY = 0.25  # share of the fields of a slide that must be unlike the training images before it is said


@dataclass(frozen=True)
class Judgement:
    """How unlike the training images an image is (above 1: beyond the limit), and warnings in plain sentences."""

    unlike: float
    warnings: tuple[str, ...]


def judgement_columns(judgement: Judgement | None) -> dict[str, float | str | None]:
    """Columns of `predictions.csv` and `slides.csv`; None is an empty field, and null in JSON."""
    if judgement is None:
        return {"unlike_training": None, "warnings": None}
    return {"unlike_training": round(judgement.unlike, 3), "warnings": "; ".join(judgement.warnings)}


@dataclass(frozen=True)
class Fault:
    """Something wrong with an image: a name that is the same for all images, and a sentence with the measured value."""

    name: str
    sentence: str


def judge(reference: Reference, description: Description) -> Judgement:
    """Judge one image."""
    unlike = reference.unlike(description)
    sentences = [fault.sentence for fault in find_faults(reference, description)]
    if unlike > 1:
        sentences.insert(0, f"unlike the training images: distance {unlike:.1f} times the limit")
    return Judgement(unlike, tuple(sentences))


def judge_fields(reference: Reference, fields: Sequence[Description]) -> Judgement:
    """Judge a slide or a very large image by its fields: the median distance, and the faults that most of them have."""
    distances = np.array([reference.unlike(each) for each in fields])
    share, median = float((distances > 1).mean()), float(np.median(distances))
    sentences = []
    if share >= _MANY:
        sentences.append(
            f"{100 * share:.0f} % of the tissue is unlike the training images: "
            f"median distance {median:.1f} times the limit"
        )
    faults = [fault for each in fields for fault in find_faults(reference, each)]
    for name, count in Counter(fault.name for fault in faults).items():
        if count / len(fields) >= _MOST:
            example = next(fault.sentence for fault in faults if fault.name == name)
            sentences.append(f"{100 * count / len(fields):.0f} % of the tissue, for example: {example}")
    return Judgement(median, tuple(sentences))


def find_faults(reference: Reference, description: Description) -> list[Fault]:
    """What is wrong with an image, in comparison with the training images."""
    return [*_tissue(reference, description), *_colour(reference, description), *_sharpness(reference, description)]


def _tissue(reference: Reference, description: Description) -> list[Fault]:
    share, least = description.appearance.tissue_share, reference.ranges["tissue_share"][0]
    if share >= least:
        return []
    return [Fault("tissue", f"nearly no tissue: {100 * share:.0f} % of the image (usual: {100 * least:.0f} % or more)")]


def _colour(reference: Reference, description: Description) -> list[Fault]:
    """At most one fault, the most specific: inverted, grey, pen, another stain."""
    looks = description.appearance
    other_colour = reference.distance("colour", looks.colour) > 1
    if other_colour and reference.distance("colour", looks.inverted_colour) < 1:
        return [Fault("inverted", "inverted: with its colours reversed it would look like the training images")]
    if looks.saturation < min(_GREY, reference.ranges["saturation"][0]):
        return [Fault("grey", f"grey: saturation {looks.saturation:.0f} (usual: {_span(reference, 'saturation')})")]
    foreign = reference.foreign_share(looks)
    mine, usual = (", ".join(map(str, rgb)) for rgb in (rgb_of(looks.colour), reference.usual_rgb()))
    stain = Fault("stain", f"another stain or scanner: mean colour of the tissue RGB {mine} (usual: {usual})")
    if foreign > reference.limits["foreign"]:
        if foreign > _MOST:
            return [stain]
        pen = "pen marks, dye or another stain"
        return [Fault("pen", f"{pen}: {100 * foreign:.0f} % of the tissue has colours that no training image has")]
    return [stain] if other_colour else []


def _sharpness(reference: Reference, description: Description) -> list[Fault]:
    sharpness, (low, high) = description.appearance.sharpness, reference.ranges["sharpness"]
    measured = f"sharpness {sharpness:.2f} (usual: {_span(reference, 'sharpness', 2)})"
    if sharpness < low:
        return [Fault("blurred", f"blurred, or enlarged from a lower resolution: {measured}")]
    if sharpness > high:
        return [Fault("fine", f"finer than the training images (noise, or a lower magnification): {measured}")]
    return []


def _span(reference: Reference, name: str, digits: int = 0) -> str:
    low, high = reference.ranges[name]
    return f"{low:.{digits}f} to {high:.{digits}f}"
