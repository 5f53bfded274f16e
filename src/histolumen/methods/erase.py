"""ERASE (Wei et al. 2017): erase what decided, look again, and be made to find the class in what is left."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from histolumen import losses
from histolumen.methods.base import (
    Batch,
    Losses,
    MapRunner,
    Method,
    Output,
    SlideMapper,
    SlideOutput,
    at_once,
    register,
)
from histolumen.methods.class_maps import ClassMapMethod, MapSettings, chosen
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

    def make_head(self, channels: int, classes: int) -> nn.Module:
        return nn.Conv2d(channels, classes, kernel_size=1, bias=False)

    def scores(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))

    def losses(self, batch: Batch) -> Losses:
        X = self.backbone.normalise(batch.images)
        rounds = []
        while True:
            maps = self._maps(X, first=not rounds)
            rounds.append(self.scores(maps))
            if len(rounds) == self.settings.rounds:
                break
            X = self._erase(X, self._activation(maps.detach(), batch.labels, X))
        share = 1 / len(rounds)
        terms = {f"round {k}": share * losses.cross_entropy(scores, batch.labels) for k, scores in enumerate(rounds, 1)}
        return Losses(terms, rounds[0])

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        X = self.backbone.normalise(images)
        maps = run(lambda x: self._maps(x, first=True), X)
        probs = self.scores(maps).softmax(1)
        rounds = [self.masks(maps, probs, X)]
        while len(rounds) < self.settings.rounds:
            found, _ = rounds[-1]
            X = self._erase(X, found)
            rounds.append(self.masks(run(lambda x: self._maps(x, first=False), X), probs, X))
        mask, evidence = (torch.stack(each).amax(0) for each in zip(*rounds, strict=True))
        return Output(probs, mask, evidence)

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:
        return Method.predict_slide(self, slide)  # rounds of erasing are not made for slides

    def _maps(self, X: Tensor, *, first: bool) -> Tensor:
        """Images with holes have statistics of their own."""
        return self.maps(self.backbone(X, Case.WHOLE if first else Case.FOREGROUND))

    def _activation(self, maps: Tensor, classes: Tensor, X: Tensor) -> Tensor:
        height, width = X.shape[2:]
        return min_max(enlarge(chosen(maps, classes), (height, width), self.grid()))

    def _erase(self, X: Tensor, activation: Tensor) -> Tensor:
        return X * (activation < 1 - self.settings.share)
