"""The CAM family: one evidence map per class, pooled into scores; the mask is the map of the predicted class.

If one class has no foreground (Camelyon16: normal), evidence *for* that class is not foreground. The mask then compares
the maps of the other classes with the map of the negative class, whatever the predicted class, and may be empty.
"""

from abc import abstractmethod
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from histolumen import losses
from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FeatureGeometry
from histolumen.methods.base import Losses, Method, MethodSettings
from histolumen.methods.view import Answer, Layer, Mask, View, stretched

_TIE = 1e-4  # far below any margin that means something, far above rounding


class MapSettings(MethodSettings):
    """Settings of every method that resizes feature maps to the image."""

    alignment: Literal["corners", "centres"] = "corners"
    """How a map is aligned with the image: stretched from corner to corner (`corners`, the paper), or with each
    position at the centre of its receptive field (`centres`), which does not shift the mask. Slides always use
    `centres`."""

    def align(self, geometry: FeatureGeometry) -> FeatureGeometry:
        """The geometry with this alignment."""
        return FeatureGeometry(geometry.stride, geometry.offset, corner_to_corner=self.alignment == "corners")


class ClassMapMethod(Method):
    """A backbone and a 1x1 convolution to one map per class; subclasses define how maps are pooled into scores."""

    def __init__(self, settings: MapSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.classes = classes
        self.head = self.make_head(backbone.channels, classes)

    def make_head(self, channels: int, classes: int) -> nn.Module:
        """The layer from features to class maps."""
        return nn.Conv2d(channels, classes, kernel_size=1)

    def maps(self, features: Tensor) -> Tensor:
        """Class maps [B, C, h, w]."""
        return self.head(features)

    @abstractmethod
    def scores(self, maps: Tensor) -> Tensor:
        """Class scores [B, C] from class maps."""

    def losses(self, batch: Batch) -> Losses:
        scores = self.scores(self.maps(self.backbone(self.backbone.normalise(batch.images))))
        return Losses({"classification": losses.cross_entropy(scores, batch.labels)}, scores)

    def predict(self, view: View) -> Answer:
        maps = view.maps(self.prediction_maps, self.geometry)
        probs = self.scores(maps.positions[:, : self.classes]).softmax(1)
        winner = probs.argmax(1)

        def explanation(stacked: Tensor) -> Tensor:
            return stacked[:, -self.classes :]

        negative = self.negative_class
        if negative is None:
            mask = stretched(maps, lambda stacked: chosen(explanation(stacked), winner))
            return Answer(probs, Mask((mask,)), evidence=Mask((Layer(maps, explanation, margin_over_others),)))

        def margin(stacked: Tensor) -> Tensor:
            return foreground_margin(explanation(stacked), negative)

        evidence = Layer(maps, margin, partial(for_every_label, classes=self.classes))
        return Answer(probs, Mask((Layer(maps, margin, foreground_probability),)), evidence=Mask((evidence,)))

    def prediction_maps(self, X: Tensor) -> Tensor:
        """Class maps [B, C, h, w]; methods whose mask comes from other maps append these: [B, 2 C, h, w]."""
        return self.maps(self.backbone(X))

    @property
    def geometry(self) -> FeatureGeometry:
        """Where the positions of `prediction_maps` lie."""
        return self.settings.align(self.backbone.geometry)


def chosen(maps: Tensor, classes: Tensor) -> Tensor:
    """Select one class map [B, 1, h, w] per image from maps [B, C, h, w]."""
    return maps[torch.arange(len(maps), device=maps.device), classes][:, None]


def margin_over_others(maps: Tensor) -> Tensor:
    """Margin of each class map over the largest of the others; positive where it wins, the paper's foreground."""
    first, second = maps.topk(2, dim=1).values.split(1, dim=1)
    return maps - torch.where(maps == first, second, first)


def foreground_margin(maps: Tensor, negative: int) -> Tensor:
    """By how much the largest map of the other classes exceeds that of the negative class [B, 1, h, w].

    Positive where the argmax over class maps is a class with foreground: the survey's rule for Camelyon16.
    """
    others = [index for index in range(maps.shape[1]) if index != negative]
    return maps[:, others].amax(1, keepdim=True) - maps[:, negative, None]


def foreground_probability(margin: Tensor) -> Tensor:
    """Sigmoid of the margin: for two classes their softmax at each pixel.

    It is not stretched per image, because a stretched map always reaches 1 and no mask would be empty. A tie, as where
    two rectified maps are both 0, is not evidence and stays just below 0.5.
    """
    return torch.sigmoid(margin - _TIE)


def for_every_label(margin: Tensor, classes: int) -> Tensor:
    """The same evidence [B, C, h, w] whatever the true label."""
    return margin.expand(-1, classes, -1, -1)


def likeliest_with_foreground(probs: Tensor, negative: int | None) -> Tensor:
    """The most probable class [B] of those that have foreground."""
    if negative is None:
        return probs.argmax(1)
    is_negative = torch.arange(probs.shape[1], device=probs.device) == negative
    return probs.masked_fill(is_negative, -1).argmax(1)
