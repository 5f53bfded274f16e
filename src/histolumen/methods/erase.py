"""ERASE (Wei et al. 2017): erase what decided, look again, and be made to find the class in what is left."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from histolumen import losses
from histolumen.methods.base import Batch, Losses, MapRunner, Output, at_once, register
from histolumen.methods.class_maps import ClassMapMethod, MapSettings, chosen
from histolumen.nets.backbones import Backbone
from histolumen.nets.batchnorm import Case
from histolumen.nets.geometry import enlarge, min_max


class EraseSettings(MapSettings):
    """Adversarial erasing."""

    name: Literal["erase"] = "erase"
    """The method."""
    share: float = Field(default=0.2, gt=0, lt=1)
    """Pixels within this share of the maximum activation are erased."""
    rounds: int = Field(default=3, ge=1)
    """How often an image is looked at."""


@register(EraseSettings)
class Erase(ClassMapMethod):
    """One network for all rounds; the mask joins what each of them found."""

    settings: EraseSettings

    def __init__(self, settings: EraseSettings, backbone: Backbone, classes: int):
        super().__init__(settings, backbone, classes)

    def make_head(self, channels: int, classes: int) -> nn.Module:
        return nn.Conv2d(channels, classes, kernel_size=1, bias=False)

    def scores(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))

    def losses(self, batch: Batch) -> Losses:
        X = self.backbone.normalise(batch.images)
        terms, first = {}, None
        for number in range(1, self.settings.rounds + 1):
            maps = self._maps(X, number)
            scores = self.scores(maps)
            first = scores if first is None else first
            terms[f"round {number}"] = losses.cross_entropy(scores, batch.labels) / self.settings.rounds
            X = self._erase(X, self._activation(maps.detach(), batch.labels, X))
        return Losses(terms, first)

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        X = self.backbone.normalise(images)
        joined: Output | None = None
        for number in range(1, self.settings.rounds + 1):
            maps = run(lambda x, number=number: self._maps(x, number), X)
            probs = self.scores(maps).softmax(1) if joined is None else joined.probs
            found = self.answer(maps, probs, X)
            X = self._erase(X, found.mask)
            joined = found if joined is None else _union(joined, found)
        if joined is None:
            raise ValueError("there is at least one round")
        return joined

    def _maps(self, X: Tensor, number: int) -> Tensor:
        """Images with holes have statistics of their own."""
        return self.maps(self.backbone(X, Case.WHOLE if number == 1 else Case.FOREGROUND))

    def _activation(self, maps: Tensor, classes: Tensor, X: Tensor) -> Tensor:
        height, width = X.shape[2:]
        return min_max(enlarge(chosen(maps, classes), (height, width), self.grid()))

    def _erase(self, X: Tensor, activation: Tensor) -> Tensor:
        return X * (activation < 1 - self.settings.share)


def _union(one: Output, other: Output) -> Output:
    if one.evidence is None or other.evidence is None:
        raise ValueError("class maps always come with evidence")
    return Output(one.probs, torch.maximum(one.mask, other.mask), torch.maximum(one.evidence, other.evidence))
