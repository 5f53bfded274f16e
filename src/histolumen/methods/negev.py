"""NEGEV (Belharbi et al. 2022): a decoder learns the mask from a few pixels that the classifier's own map is sure of.

Positive evidence are pixels where the class map is highest, negative evidence those where it is lowest, and every pixel
of an image whose class has no foreground at all (normal tissue).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen import losses
from histolumen.errors import ConfigError, nearest
from histolumen.methods.base import (
    Batch,
    Losses,
    MapRunner,
    Method,
    Output,
    SlideMapper,
    SlideMask,
    SlideOutput,
    at_once,
    register,
)
from histolumen.methods.class_maps import MapSettings, chosen
from histolumen.nets.backbones import Backbone
from histolumen.nets.decoder import FINE_STRIDE, Decoder, at_least
from histolumen.nets.geometry import Grid, enlarge


class NegevSettings(MapSettings):
    """A CAM-Avg classifier and a decoder that its map teaches."""

    name: Literal["negev"] = "negev"
    """The method."""
    warmup: float = Field(default=0.3, ge=0, lt=1)
    """Share of the epochs in which only the classifier learns, until its map is worth teaching."""
    pixels: int = Field(default=32, ge=1)
    """Pixels sampled per image and step, of the foreground and of the background each."""
    candidates: float = Field(default=0.2, gt=0, le=0.5)
    """They come from this share of the image where the map is highest, and where it is lowest."""
    negative_class: str | None = None
    """The class whose images have no foreground (normal tissue); null: every class has some."""
    width: int = Field(default=64, ge=1)
    """Channels of the decoder."""


@register(NegevSettings)
class Negev(Method):
    """Classifier and decoder share the backbone, which only the classifier may change."""

    epochs: Tensor

    def __init__(self, settings: NegevSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.head = nn.Conv2d(backbone.channels, classes, kernel_size=1)
        self.decoder = Decoder(backbone.channels, backbone.stride, settings.width)
        self.register_buffer("epochs", torch.tensor(0))
        self.warmup, self.negative_class = 0, -1  # no label is negative

    @property
    def ready(self) -> bool:
        return int(self.epochs) >= self.warmup

    def begin(self, epochs: int, classes: Sequence[str]) -> None:
        self.warmup = int(self.settings.warmup * epochs)
        negative = self.settings.negative_class
        if negative is not None:
            if negative not in classes:
                raise ConfigError(f"method.negative_class: no class '{negative}'; {nearest(negative, classes)}")
            self.negative_class = list(classes).index(negative)

    def losses(self, batch: Batch) -> Losses:
        X = self.backbone.normalise(batch.images)
        features = self.backbone(X)
        maps = self.head(features)
        scores = maps.mean((2, 3))
        logits = self.decoder(features.detach(), X)
        learning = float(self.ready)  # a factor, so that every weight always has a gradient
        terms = {
            "classification": losses.cross_entropy(scores, batch.labels),
            "evidence": learning * self._evidence(logits, maps.detach(), batch),
        }
        return Losses(terms, scores)

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        both = run(self._maps_and_logits, self.backbone.normalise(images))
        maps, logits = both[:, :-2], both[:, -2:]
        height, width = images.shape[2:]
        soft = F.interpolate(logits.softmax(1)[:, 1:], scale_factor=FINE_STRIDE, mode="bilinear", align_corners=False)
        return Output(maps.mean((2, 3)).softmax(1), at_least(soft, height, width)[..., :height, :width])

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:
        grid = Grid(FINE_STRIDE, (FINE_STRIDE - 1) / 2)
        maps = slide.maps(lambda tile, _: self._maps_and_logits(self.backbone.normalise(tile)), grid)
        probs = maps.positions[:, :-2].mean((2, 3)).softmax(1)
        return SlideOutput(probs, SlideMask(maps, lambda both: both[:, -2:].softmax(1)[:, 1:]))

    def end_epoch(self) -> None:
        self.epochs.add_(1)

    def _maps_and_logits(self, X: Tensor) -> Tensor:
        """Class maps and decoder logits, stacked at the decoder's resolution."""
        features = self.backbone(X)
        logits = self.decoder(features, X)
        return torch.cat([F.interpolate(self.head(features), size=logits.shape[2:], mode="nearest"), logits], dim=1)

    def _evidence(self, logits: Tensor, maps: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of the sampled pixels, and of all pixels of images without foreground."""
        height, width = batch.images.shape[2:]
        winner = enlarge(chosen(maps, batch.labels), (height, width), self.settings.grid(self.backbone))
        covered = [FINE_STRIDE * side for side in logits.shape[2:]]
        evidence = F.avg_pool2d(at_least(winner, *covered)[..., : covered[0], : covered[1]], FINE_STRIDE).flatten(1)
        log_p = logits.log_softmax(1).flatten(2)  # [B, 2, positions]
        sure, unsure = (self._sample(sign * evidence) for sign in (1, -1))
        sampled = -(log_p[:, 1].gather(1, sure).mean(1) + log_p[:, 0].gather(1, unsure).mean(1)) / 2
        return torch.where(batch.labels == self.negative_class, -log_p[:, 0].mean(1), sampled).mean()

    def _sample(self, evidence: Tensor) -> Tensor:
        """Indices [B, pixels], drawn from the positions [B, N] where `evidence` is highest."""
        count = max(int(self.settings.candidates * evidence.shape[1]), 1)
        candidates = evidence.topk(count, dim=1, sorted=False).indices
        drawn = torch.randint(count, (len(evidence), self.settings.pixels), device=evidence.device)
        return candidates.gather(1, drawn)
