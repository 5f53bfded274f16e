"""NEGEV (Belharbi et al. 2022): a decoder learns the mask from sampled pixels of high and low class activation.

Foreground pixels are sampled where the class map is highest, background pixels where it is lowest. In images of a class
without foreground (normal tissue), every pixel is background.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen import losses
from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FeatureGeometry, enlarge
from histolumen.methods.base import Losses, Method, register
from histolumen.methods.class_maps import MapSettings, chosen
from histolumen.methods.view import Answer, Layer, Mask, View, beside
from histolumen.nets.decoder import Decoder, at_least


class NegevSettings(MapSettings):
    """A CAM-Avg classifier and a decoder trained on its class map."""

    name: Literal["negev"] = "negev"
    """The method."""
    warmup: float = Field(default=0.3, ge=0, lt=1)
    """Share of the epochs in which only the classifier is trained."""
    pixels: int = Field(default=32, ge=1)
    """Pixels sampled per image and step, for foreground and background each."""
    candidates: float = Field(default=0.2, gt=0, le=0.5)
    """Pixels are sampled from this share of the image with the highest, and with the lowest, map values."""
    width: int = Field(default=64, ge=1)
    """Channels of the decoder."""


@register(NegevSettings)
class Negev(Method):
    """Classifier and decoder share the backbone; only the classifier's loss trains it."""

    epochs: Tensor

    def __init__(self, settings: NegevSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.head = nn.Conv2d(backbone.channels, classes, kernel_size=1)
        self.decoder = Decoder(backbone.channels, backbone.stride, settings.width)
        self.register_buffer("epochs", torch.tensor(0))
        self.warmup = 0

    @property
    def selectable(self) -> bool:
        return int(self.epochs) >= self.warmup

    def on_train_start(self, epochs: int) -> None:
        self.warmup = int(self.settings.warmup * epochs)

    def losses(self, batch: Batch) -> Losses:
        X = self.backbone.normalise(batch.images)
        features = self.backbone(X)
        maps = self.head(features)
        scores = maps.mean((2, 3))
        logits = self.decoder(features.detach(), X)
        after_warmup = float(self.selectable)  # a factor, so that every weight always has a gradient
        terms = {
            "classification": losses.cross_entropy(scores, batch.labels),
            "evidence": after_warmup * self._evidence(logits, maps.detach(), batch),
        }
        return Losses(terms, scores)

    def predict(self, view: View) -> Answer:
        both = view.maps(self._maps_and_logits, FeatureGeometry.of_cells(self.decoder.fine_stride))
        probs = both.positions[:, :-2].mean((2, 3)).softmax(1)
        return Answer(probs, Mask((Layer(both, lambda stacked: stacked[:, -2:].softmax(1)[:, 1:]),)))

    def on_epoch_end(self) -> None:
        self.epochs.add_(1)

    def _maps_and_logits(self, X: Tensor) -> Tensor:
        """Class maps and decoder logits, stacked at the decoder's resolution."""
        features = self.backbone(X)
        logits = self.decoder(features, X)
        return beside(self.head(features), logits)

    def _evidence(self, logits: Tensor, maps: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of the sampled pixels, and of all pixels of images without foreground."""
        height, width = batch.images.shape[2:]
        winner = enlarge(chosen(maps, batch.labels), (height, width), self.settings.align(self.backbone.geometry))
        stride = self.decoder.fine_stride
        covered = [stride * side for side in logits.shape[2:]]
        evidence = F.avg_pool2d(at_least(winner, *covered)[..., : covered[0], : covered[1]], stride).flatten(1)
        log_p = logits.log_softmax(1).flatten(2)  # [B, 2, positions]
        foreground, background = (self._sample(sign * evidence) for sign in (1, -1))
        sampled = -(log_p[:, 1].gather(1, foreground).mean(1) + log_p[:, 0].gather(1, background).mean(1)) / 2
        if self.negative_class is None:
            return sampled.mean()
        return torch.where(batch.labels == self.negative_class, -log_p[:, 0].mean(1), sampled).mean()

    def _sample(self, evidence: Tensor) -> Tensor:
        """Indices [B, pixels] sampled from the positions [B, N] where `evidence` is highest."""
        count = max(int(self.settings.candidates * evidence.shape[1]), 1)
        candidates = evidence.topk(count, dim=1, sorted=False).indices
        drawn = torch.randint(count, (len(evidence), self.settings.pixels), device=evidence.device)
        return candidates.gather(1, drawn)
