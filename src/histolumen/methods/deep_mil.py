"""Deep MIL (Ilse et al. 2018): an image is a bag of positions; attention, a map per class, says which matter."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

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
from histolumen.methods.class_maps import MapSettings, chosen, stretched
from histolumen.nets.backbones import Backbone
from histolumen.nets.geometry import enlarge, min_max


class DeepMilSettings(MapSettings):
    """Attention over positions."""

    name: Literal["deep_mil"] = "deep_mil"
    """The method."""
    width: int = Field(default=128, ge=1)
    """Hidden units of the attention."""


@register(DeepMilSettings)
class DeepMil(Method):
    """Each class averages the features with its own attention and judges the average."""

    def __init__(self, settings: DeepMilSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.attention = nn.Sequential(
            nn.Conv2d(backbone.channels, settings.width, kernel_size=1),
            nn.Tanh(),
            nn.Conv2d(settings.width, classes, kernel_size=1),
        )
        self.classifier = nn.Linear(backbone.channels, classes)

    def losses(self, batch: Batch) -> Losses:
        scores, _ = self._judge(self._maps(self.backbone.normalise(batch.images)))
        return Losses({"classification": losses.cross_entropy(scores, batch.labels)}, scores)

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        scores, attention = self._judge(run(self._maps, self.backbone.normalise(images)))
        probs = scores.softmax(1)
        height, width = images.shape[2:]
        enlarged = enlarge(attention, (height, width), self.settings.grid(self.backbone))
        return Output(probs, min_max(chosen(enlarged, probs.argmax(1))), evidence=enlarged - 1)

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:
        maps = slide.maps(lambda tile, _: self._maps(self.backbone.normalise(tile)), self.backbone.grid)
        positions = maps.positions
        scores, _ = self._judge(positions)
        probs = scores.softmax(1)
        most = chosen(positions, probs.argmax(1)).max()  # the softmax's own way not to overflow
        return SlideOutput(probs, stretched(maps, lambda found: (chosen(found, probs.argmax(1)) - most).exp()))

    def _maps(self, X: Tensor) -> Tensor:
        """Before the softmax: how much each class looks at a position, and what it would say of it [B, 2 C, h, w]."""
        features = self.backbone(X)
        opinions = F.conv2d(features, self.classifier.weight[:, :, None, None])
        return torch.cat([self.attention(features), opinions], dim=1)

    def _judge(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [B, C], and attention [B, C, h, w] in units of its mean: above 1 is the paper's foreground.

        The classifier is linear: its opinion of the attended average is the attended average of its opinions.
        """
        looks, opinions = maps.flatten(2).chunk(2, dim=1)
        attention = looks.softmax(2)
        scores = (attention * opinions).sum(2) + self.classifier.bias
        return scores, (attention * attention.shape[2]).unflatten(2, maps.shape[2:])
