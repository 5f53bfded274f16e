"""ERASE (Wei et al. 2017): erase the most discriminative pixels, and classify the image again without them."""

from functools import partial
from typing import Literal, cast

from pydantic import Field
from torch import Tensor, nn

from histolumen import losses
from histolumen.data.batch import Batch
from histolumen.encoders.batchnorm import Case
from histolumen.encoders.geometry import enlarge, min_max
from histolumen.methods.base import Losses, register
from histolumen.methods.class_maps import (
    ClassMapMethod,
    MapSettings,
    chosen,
    for_every_label,
    foreground_margin,
    foreground_probability,
    margin_over_others,
)
from histolumen.methods.view import Answer, Layer, Mask, View, stretched


class EraseSettings(MapSettings):
    """Adversarial erasing."""

    name: Literal["erase"] = "erase"
    """The method."""
    share: float = Field(default=0.2, gt=0, lt=1)
    """Pixels whose activation is within this share of the maximum are erased."""
    rounds: int = Field(default=3, ge=1)
    """Number of passes per image in training, with erasing between them."""
    test_rounds: int = Field(default=1, ge=1)
    """Number of passes in prediction; the mask is the maximum over their activations. The paper's time per image, the
    shortest of its table, is that of one."""


@register(EraseSettings)
class Erase(ClassMapMethod):
    """One network for all rounds. The class is that of the first pass, over the whole image."""

    settings: EraseSettings

    def make_head(self, channels: int, classes: int) -> nn.Module:
        return nn.Conv2d(channels, classes, kernel_size=1, bias=False)

    def scores(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))

    @property
    def masks_pixels(self) -> bool:
        return self.settings.test_rounds > 1

    def losses(self, batch: Batch) -> Losses:
        X = self.backbone.normalise(batch.images)
        rounds = []
        while True:
            maps = self._maps(X, first=not rounds)
            rounds.append(self.scores(maps))
            if len(rounds) == self.settings.rounds:
                break
            X = X * self._keep_mask(self._activation(maps.detach(), batch.labels, X))
        weight = 1 / len(rounds)
        terms = {
            f"round {k}": weight * losses.cross_entropy(scores, batch.labels) for k, scores in enumerate(rounds, 1)
        }
        return Losses(terms, rounds[0])

    def predict(self, view: View) -> Answer:
        """With several rounds, each erases by the map of the predicted class, as training does by that of the label."""
        layers: list[Layer] = []
        margins: list[Layer] = []
        evidence: list[Layer] = []
        probs, remaining = None, None
        for number in range(self.settings.test_rounds):
            net = partial(self._maps, first=number == 0)
            maps = view.maps(net, self.geometry, remaining)
            probs = self.scores(maps.positions).softmax(1) if probs is None else probs
            layers.append(stretched(maps, partial(chosen, classes=probs.argmax(1))))
            if self.negative_class is None:
                evidence.append(Layer(maps, finish=margin_over_others))
            else:
                margin = partial(foreground_margin, negative=self.negative_class)
                margins.append(Layer(maps, margin, foreground_probability))
                evidence.append(Layer(maps, margin, partial(for_every_label, classes=self.classes)))
            remaining = Mask(tuple(layers), finish=self._keep_mask)
        return Answer(cast("Tensor", probs), Mask(tuple(margins or layers)), evidence=Mask(tuple(evidence)))

    def _maps(self, X: Tensor, *, first: bool) -> Tensor:
        """Class maps; partly erased images have separate BatchNorm statistics."""
        return self.maps(self.backbone(X, Case.WHOLE if first else Case.FOREGROUND))

    def _activation(self, maps: Tensor, classes: Tensor, X: Tensor) -> Tensor:
        height, width = X.shape[2:]
        return min_max(enlarge(chosen(maps, classes), (height, width), self.geometry))

    def _keep_mask(self, activation: Tensor) -> Tensor:
        """1 where a pixel is kept, 0 where it is erased."""
        return (activation < 1 - self.settings.share).to(activation.dtype)
