"""Deep MIL (Ilse et al. 2018): an image is a bag of positions, weighted by one attention map per class.

By the paper's rule a pixel is foreground where attention is above 1 / (classes x positions), half its mean for two
classes. Attention sums to 1 on every image, so it cannot be empty. If one class has no foreground, the mask is the
attention of the most probable other class times the probability that the image is not negative.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen import losses
from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import Losses, Method, register
from histolumen.methods.class_maps import MapSettings, chosen, for_every_label, likeliest_with_foreground
from histolumen.methods.view import Answer, Layer, Mask, View, stretched
from histolumen.nets.pooling import log_mean_exp


class DeepMilSettings(MapSettings):
    """Attention pooling over positions."""

    name: Literal["deep_mil"] = "deep_mil"
    """The method."""
    width: int = Field(default=128, ge=1)
    """Hidden units of the attention network."""


@register(DeepMilSettings)
class DeepMil(Method):
    """Each class averages the features with its own attention and classifies the average."""

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
        scores, _ = self._pool(self._maps(self.backbone.normalise(batch.images)))
        return Losses({"classification": losses.cross_entropy(scores, batch.labels)}, scores)

    def predict(self, view: View) -> Answer:
        maps = view.maps(self._maps, self.settings.align(self.backbone.geometry))
        scores, mean = self._pool(maps.positions)
        probs = scores.softmax(1)
        negative = self.negative_class
        shown = likeliest_with_foreground(probs, negative)

        def attention(stacked: Tensor) -> Tensor:
            """Relative to its mean over positions."""
            return (stacked.chunk(2, dim=1)[0] - mean[:, :, None, None]).exp()

        def shown_attention(stacked: Tensor) -> Tensor:
            return chosen(attention(stacked), shown)

        threshold = 1 / probs.shape[1]  # attention above 1 / (classes x positions): the mean over positions is 1 here
        if negative is None:
            evidence = Layer(maps, attention, lambda value: value - threshold)
            return Answer(probs, Mask((stretched(maps, shown_attention),)), evidence=Mask((evidence,)))
        positive = 1 - probs[:, negative, None, None, None]
        mask = stretched(maps, shown_attention, lambda value: value * positive)
        evidence = Layer(maps, shown_attention, lambda value: for_every_label(value - threshold, probs.shape[1]))
        return Answer(probs, Mask((mask,)), evidence=Mask((evidence,)))

    def _maps(self, X: Tensor) -> Tensor:
        """Attention logits and class logits of every position [B, 2 C, h, w]."""
        features = self.backbone(X)
        class_logits = F.conv2d(features, self.classifier.weight[:, :, None, None])
        return torch.cat([self.attention(features), class_logits], dim=1)

    def _pool(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [B, C], and the logit [B, C] of the mean attention.

        The classifier is linear, so it can be applied to each position before the attention-weighted average.
        """
        logits, class_logits = maps.flatten(2).chunk(2, dim=1)
        scores = (logits.softmax(2) * (class_logits + self.classifier.bias[:, None])).sum(2)  # weights sum to 1
        return scores, log_mean_exp(logits)
