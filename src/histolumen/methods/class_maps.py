"""What the CAM family shares: a map of evidence per class, pooled into scores, and two ways to make a mask of it."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from histolumen import losses
from histolumen.methods.base import (
    Batch,
    Losses,
    MapRunner,
    Method,
    MethodSettings,
    Output,
    SlideMapper,
    SlideMaps,
    SlideMask,
    SlideOutput,
    at_once,
)
from histolumen.nets.backbones import Backbone
from histolumen.nets.geometry import Grid, enlarge, min_max, stretch


class MapSettings(MethodSettings):
    """What every method that enlarges a map can choose."""

    alignment: Literal["corners", "centres"] = "corners"
    """How the map is laid over the image: stretched `corners` to corners (the paper), or with every position over the
    `centres` of what it looks at, which does not shift the mask."""

    def grid(self, backbone: Backbone) -> Grid | None:
        """For `enlarge`."""
        return backbone.grid if self.alignment == "centres" else None


class ClassMapMethod(Method):
    """A backbone and a 1x1 convolution to one map per class; subclasses say how a map becomes a score."""

    def __init__(self, settings: MapSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.classes = classes
        self.head = self.make_head(backbone.channels, classes)

    def make_head(self, channels: int, classes: int) -> nn.Module:
        """The layer between features and class maps."""
        return nn.Conv2d(channels, classes, kernel_size=1)

    def maps(self, features: Tensor) -> Tensor:
        """Class maps [B, C, h, w]."""
        return self.head(features)

    def scores(self, maps: Tensor) -> Tensor:
        """Class scores [B, C]."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> Losses:
        scores = self.scores(self.maps(self.backbone(self.backbone.normalise(batch.images))))
        return Losses({"classification": losses.cross_entropy(scores, batch.labels)}, scores)

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        maps = run(lambda x: self.maps(self.backbone(x)), self.backbone.normalise(images))
        return self.answer(maps, self.scores(maps).softmax(1), images)

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:
        maps = slide.maps(lambda tile, _: self.slide_maps(self.backbone.normalise(tile)), self.own_grid())
        probs = self.scores(maps.positions[:, : self.classes]).softmax(1)
        return SlideOutput(probs, stretched(maps, lambda found: chosen(found[:, -self.classes :], probs.argmax(1))))

    def slide_maps(self, X: Tensor) -> Tensor:
        """Class maps and, where others make the mask, those after them."""
        return self.maps(self.backbone(X))

    def answer(self, maps: Tensor, probs: Tensor, images: Tensor) -> Output:
        """The map of the most probable class, stretched to [0, 1], is the mask."""
        return Output(probs, *self.masks(maps, probs, images))

    def masks(self, maps: Tensor, probs: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Soft mask [B, 1, H, W] and evidence [B, C, H, W] of `Output`."""
        height, width = images.shape[2:]
        enlarged = enlarge(maps, (height, width), self.grid())
        return min_max(chosen(enlarged, probs.argmax(1))), lead(enlarged)

    def grid(self) -> Grid | None:
        """How the maps lie over the image."""
        return self.settings.grid(self.backbone) and self.own_grid()

    def own_grid(self) -> Grid:
        """Where the positions of the maps look."""
        return self.backbone.grid


def stretched(maps: SlideMaps, value: Callable[[Tensor], Tensor]) -> SlideMask:
    """The mask of a slide by one map, stretched to [0, 1] over all of its tissue."""
    low, high = maps.range_of(value)
    return SlideMask(maps, lambda found: stretch(value(found), low, high).clamp(0, 1))


def chosen(maps: Tensor, classes: Tensor) -> Tensor:
    """From maps [B, C, h, w] the one [B, 1, h, w] of each image's class."""
    return maps[torch.arange(len(maps), device=maps.device), classes][:, None]


def lead(maps: Tensor) -> Tensor:
    """By how much each class map exceeds all others: positive where it is the largest, the paper's foreground."""
    first, second = maps.topk(2, dim=1).values.split(1, dim=1)
    return maps - torch.where(maps == first, second, first)
