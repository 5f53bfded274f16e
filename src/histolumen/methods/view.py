"""The input of a prediction: images in memory or a whole slide, behind one interface.

A method implements `predict(view)` once. `view.maps` runs a network over the pixels and stores its maps;
`maps.positions` are pooled into scores; a `Mask` defines how maps become a soft mask. `ImageView` keeps maps in memory,
`engine.slides.view.SlideView` stores the maps of a slide on disk, tile by tile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.geometry import FeatureGeometry, enlarge, stretch

MapNet = Callable[[Tensor], Tensor]
"""From normalised pixels [B, 3, H, W] to maps [B, K, h, w]; fully convolutional, unless `View.at_once`."""
Pointwise = Callable[[Tensor], Tensor]
"""A function applied to each pixel or position independently."""
Masking = Callable[[Tensor, Tensor], Tensor]
"""How a network receives normalised pixels [B, 3, H, W] and a soft mask [B, 1, H, W]: their product, or both."""


def appended(pixels: Tensor, mask: Tensor) -> Tensor:
    """A `Masking` that leaves the pixels as they are and adds the mask as a fourth channel."""
    return torch.cat([pixels, mask.to(pixels)], dim=1)


def unchanged(values: Tensor) -> Tensor:
    """The identity."""
    return values


class MapRunner(Protocol):
    """Applies a network to images: at once, or in windows if they are large."""

    def __call__(self, net: MapNet, images: Tensor) -> Tensor: ...


def at_once(net: MapNet, images: Tensor) -> Tensor:
    """A `MapRunner` without windows."""
    return net(images)


class Maps(Protocol):
    """Output maps of a network for an image or a slide."""

    @property
    def positions(self) -> Tensor:
        """The maps at all positions, for pooling: [B, K, h, w], or [1, K, 1, N] for the tissue of a slide."""
        ...

    def range_of(self, value: Pointwise) -> tuple[Tensor, Tensor]:
        """Minimum and maximum of `value(maps)`, [B, 1, 1, 1] each, over the image or the tissue of the slide."""
        ...


@dataclass(frozen=True)
class Layer:
    """Pixel values from maps: `value` is applied at map resolution, `finish` after resizing to pixels."""

    maps: Maps
    value: Pointwise = unchanged
    finish: Pointwise = unchanged


@dataclass(frozen=True)
class Mask:
    """Pixel-wise maximum over layers, followed by `finish`; without layers, 1 everywhere."""

    layers: tuple[Layer, ...]
    finish: Pointwise = unchanged

    def combine(self, layers: Sequence[Tensor]) -> Tensor:
        """The mask from the values of its layers."""
        return self.finish(torch.stack(list(layers)).amax(0) if len(layers) > 1 else layers[0])


def stretched(maps: Maps, value: Pointwise, finish: Pointwise = unchanged) -> Layer:
    """A layer whose values are min-max normalised over the whole image or slide (Eq. 8)."""
    low, high = maps.range_of(value)
    return Layer(maps, value, lambda values: finish(stretch(values, low, high).clamp(0, 1)))


class View(Protocol):
    """Images or a slide, already normalised as the backbone expects."""

    @property
    def count(self) -> int:
        """Number of images; 1 for a slide."""
        ...

    @property
    def at_once(self) -> bool:
        """Whether a network sees each image at once, not in windows or tiles."""
        ...

    def maps(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> Maps:
        """Run `net` over the pixels.

        Args:
            net: the network.
            geometry: where its positions lie on its input pixels.
            seen: mask that the pixels are multiplied by first.
            scale: factor by which they are then resized.
            masking: what is done with `seen` instead of the multiplication.
        """
        ...

    def positions(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> Tensor:
        """Same as `maps(...).positions`, for maps that are not used in a mask."""
        ...


@dataclass(frozen=True)
class Answer:
    """A prediction: class probabilities [B, C] and the definition of the soft mask.

    `evidence` has one value per class. It is positive where the binarisation that the paper uses for its baselines
    marks foreground if the image is of that class. If one class has no foreground, all classes have the same value: the
    evidence for the other classes.
    """

    probs: Tensor
    mask: Mask
    evidence: Mask | None = None


@dataclass(frozen=True)
class Output:
    """A prediction for images in memory: `soft_mask` [B, 1, H, W] in [0, 1] and `evidence` [B, C, H, W] as tensors."""

    probs: Tensor
    soft_mask: Tensor
    evidence: Tensor | None = None

    def chunk(self, count: int) -> list["Output"]:
        """The outputs of equal parts of the batch."""
        evidence = [None] * count if self.evidence is None else self.evidence.chunk(count)
        parts = zip(self.probs.chunk(count), self.soft_mask.chunk(count), evidence, strict=True)
        return [Output(*part) for part in parts]


class ImageMaps:
    """Maps of a batch of images."""

    def __init__(self, positions: Tensor, geometry: FeatureGeometry, size: tuple[int, int]):
        self.positions, self._geometry, self._size = positions, geometry, size
        self._enlarged: dict[Pointwise, Tensor] = {}  # a stretched layer reads its values twice

    def enlarged(self, value: Pointwise) -> Tensor:
        """`value(maps)` at the size of the images."""
        if value not in self._enlarged:
            self._enlarged[value] = enlarge(value(self.positions), self._size, self._geometry)
        return self._enlarged[value]

    def range_of(self, value: Pointwise) -> tuple[Tensor, Tensor]:
        values = self.enlarged(value)
        return values.amin((2, 3), keepdim=True), values.amax((2, 3), keepdim=True)


class ImageView:
    """A batch of normalised images [B, 3, H, W] in memory."""

    def __init__(self, pixels: Tensor, run: MapRunner = at_once):
        self.pixels, self._run = pixels, run
        height, width = pixels.shape[2:]
        self._size = height, width

    @property
    def count(self) -> int:
        return len(self.pixels)

    @property
    def at_once(self) -> bool:
        return self._run is at_once

    def maps(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> ImageMaps:
        pixels = self.pixels if seen is None else masking(self.pixels, self.render(seen))
        return ImageMaps(self._run(net, resized(pixels, scale)), geometry.scaled(1 / scale), self._size)

    def positions(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> Tensor:
        return self.maps(net, geometry, seen, scale, masking).positions

    def render(self, mask: Mask) -> Tensor:
        """The mask at the size of the images."""
        if not mask.layers:
            return torch.ones_like(self.pixels[:, :1])
        layers = []
        for layer in mask.layers:
            if not isinstance(layer.maps, ImageMaps):
                raise TypeError("an ImageView can only render masks made of ImageMaps")
            layers.append(layer.finish(layer.maps.enlarged(layer.value)))
        return mask.combine(layers)

    def output(self, answer: Answer) -> Output:
        """The answer with its masks rendered as tensors."""
        evidence = None if answer.evidence is None else self.render(answer.evidence)
        return Output(answer.probs, self.render(answer.mask), evidence)


def beside(class_maps: Tensor, finer: Tensor) -> Tensor:
    """Class maps and finer maps of the same pass [B, C + K, h, w]: positions of the class maps are repeated, which
    leaves means over all positions or a share of them nearly as they are."""
    return torch.cat([F.interpolate(class_maps, size=finer.shape[2:], mode="nearest"), finer], dim=1)


def resized(images: Tensor, scale: float) -> Tensor:
    """Images with both sides multiplied by `scale`."""
    if scale == 1:
        return images
    size = [max(1, round(side * scale)) for side in images.shape[2:]]
    return F.interpolate(images, size=size, mode="bilinear", align_corners=False)
