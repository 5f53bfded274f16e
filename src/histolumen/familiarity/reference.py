"""What the training images of a model look like, and the judgement of further images by it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from skimage import color
from torch import Tensor

from histolumen.encoders.backbone import Backbone
from histolumen.familiarity.appearance import CELL_COUNT, Appearance, describe_appearance, neighbours
from histolumen.familiarity.features import pooled_features
from histolumen.familiarity.normal import Normal, conformal_limit, held_out_distances
from histolumen.tissue.glass import white_fields

MIN_IMAGES = 5
"""Fewer training images do not show how much images of their kind differ."""
_LEVEL = 0.95  # share of the training images' kind that is within the limit
_COMMON = 1e-3  # share of an image in a cell of the colour space, from which on the colour counts as seen
_FOREIGN = 0.02  # share of the tissue; specks of other colours are normal


@dataclass(frozen=True)
class Description:
    """An image in numbers: features of the network (none: empty), and its appearance."""

    features: np.ndarray
    appearance: Appearance

    @property
    def looks(self) -> np.ndarray:
        """Colour and texture as one vector."""
        return np.concatenate([self.appearance.colour, self.appearance.texture])


@dataclass(frozen=True)
class Reference:
    """The distribution of the training images, with the limits beyond which an image is unlike them.

    All limits come from training images that were left out of the fit, fold by fold; no label and no mask is used.
    """

    layer: str
    """Layer of the backbone that is described."""
    size: tuple[int, int]
    """Median height and width of the training images at working size."""
    parts: dict[str, Normal]
    """Distributions of the `features`, of the `looks` and of the `colour` alone."""
    limits: dict[str, float]
    """Largest distance in each part, and largest share of `foreign` colours."""
    ranges: dict[str, tuple[float, float]]
    """Smallest and largest usual `sharpness`, `saturation` and `tissue_share`."""
    seen: np.ndarray
    """Cells of the colour space that training images have, or that are next to one [cells] bool."""

    def describe(self, backbone: Backbone, pixels: np.ndarray) -> Description:
        """Describe an image, RGB [H, W, 3] uint8 at working size."""
        return describe_image(backbone, self.layer, pixels)

    def unlike(self, description: Description) -> float:
        """Distance from the training images relative to the limit: above 1, the image is unlike them."""
        distances = [self.distance("looks", description.looks)]
        if "features" in self.parts:
            distances.append(self.distance("features", description.features))
        return max(distances)

    def distance(self, part: str, vector: np.ndarray) -> float:
        """Distance in one part relative to its limit."""
        return float(self.parts[part].distance(vector[None])[0]) / self.limits[part]

    def foreign_share(self, appearance: Appearance) -> float:
        """Share of the tissue with colours that no training image has."""
        return float(appearance.shares[~self.seen[appearance.cells]].sum())

    def usual_rgb(self) -> tuple[int, ...]:
        """Mean colour of the tissue of the training images, RGB from 0 to 255."""
        return rgb_of(self.parts["colour"].mean)

    def tensors(self) -> dict[str, Tensor]:
        """All numbers as tensors, for a file."""
        arrays: dict[str, np.ndarray] = {"size": np.array(self.size), "seen": self.seen.astype(np.uint8)}
        for part, normal in self.parts.items():
            arrays |= {f"{part}.{name}": value for name, value in vars(normal).items()}
        arrays |= {f"limit.{name}": np.array(value) for name, value in self.limits.items()}
        arrays |= {f"range.{name}": np.array(value) for name, value in self.ranges.items()}
        return {name: torch.from_numpy(np.array(value, order="C")) for name, value in arrays.items()}

    @classmethod
    def from_tensors(cls, layer: str, tensors: dict[str, Tensor]) -> "Reference":
        """The inverse of `tensors`; raises KeyError or ValueError if something is missing."""
        arrays = {name: value.numpy() for name, value in tensors.items()}

        def below(kind: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(kind): value for name, value in arrays.items() if name.startswith(kind)}

        parts = {part: Normal(**below(f"{part}.")) for part in ("features", "looks", "colour") if below(f"{part}.")}
        height, width = (int(side) for side in arrays["size"])
        return cls(
            layer,
            (height, width),
            {name: parts[name] for name in sorted(parts)},
            {name: float(value) for name, value in below("limit.").items()},
            {name: (float(value[0]), float(value[1])) for name, value in below("range.").items()},
            arrays["seen"].astype(bool),
        )


def describe_image(backbone: Backbone, layer: str, pixels: np.ndarray) -> Description:
    """Describe an image, RGB [H, W, 3] uint8 at working size, with a backbone in evaluation mode."""
    white = white_fields(pixels)
    return Description(pooled_features(backbone, layer, pixels, white), describe_appearance(pixels, white))


def fit_reference(
    layer: str, descriptions: Sequence[Description], groups: list[str], sizes: Sequence[tuple[int, int]]
) -> Reference | None:
    """Fit the descriptions of all training images; None if there are too few.

    Args:
        layer: the described layer.
        descriptions: one per image.
        groups: patient of each image; images of a patient are held out together.
        sizes: height and width of each image at working size.
    """
    if len(descriptions) < MIN_IMAGES:
        return None
    looks = [each.appearance for each in descriptions]
    vectors = {
        "features": np.array([each.features for each in descriptions]),
        "looks": np.array([each.looks for each in descriptions]),
        "colour": np.array([each.colour for each in looks]),
    }
    vectors = {part: values for part, values in vectors.items() if values.shape[1]}
    held_out = {part: held_out_distances(values, groups) for part, values in vectors.items()}
    limits = _common_limits({part: values for part, values in held_out.items() if part != "colour"})
    limits["colour"] = float(held_out["colour"].max())
    seen, limits["foreign"] = _seen_colours(looks)
    ranges = {
        name: _usual_range([getattr(each, name) for each in looks])
        for name in ("sharpness", "saturation", "tissue_share")
    }
    height, width = (int(side) for side in np.median(np.array(sizes), axis=0))
    parts = {part: Normal.fit(values) for part, values in sorted(vectors.items())}
    return Reference(layer, (height, width), parts, limits, ranges, seen)


def rgb_of(colour: np.ndarray) -> tuple[int, ...]:
    """The mean colour of a description as RGB from 0 to 255."""
    return tuple(round(255 * value) for value in color.lab2rgb(colour[:3]).tolist())


def _common_limits(held_out: dict[str, np.ndarray]) -> dict[str, float]:
    """Limits of all parts such that the share `_LEVEL` of the held-out images is within all of them at once."""
    scales = {part: max(conformal_limit(values, _LEVEL), 1e-9) for part, values in held_out.items()}
    largest = np.max([values / scales[part] for part, values in held_out.items()], axis=0)
    common = conformal_limit(largest, _LEVEL)
    return {part: scale * common for part, scale in scales.items()}


def _usual_range(values: list[float]) -> tuple[float, float]:
    """One standard deviation beyond the range of the training images, but no less than half of the smallest value."""
    low, high, spread = min(values), max(values), float(np.std(values))
    return max(low - spread, low / 2) if low > 0 else low - spread, high + spread


def _seen_colours(looks: Sequence[Appearance]) -> tuple[np.ndarray, float]:
    """Colours of the training images, and the share of other colours that one of them has compared with the rest."""
    common = [each.cells[each.shares > _COMMON] for each in looks]
    count = np.bincount(np.concatenate(common), minlength=CELL_COUNT)
    foreign = []
    for each, own in zip(looks, common, strict=True):
        count[own] -= 1
        foreign.append(float(each.shares[~neighbours(count > 0)[each.cells]].sum()))
        count[own] += 1
    return neighbours(count > 0), max(_FOREIGN, conformal_limit(np.array(foreign), _LEVEL))
