"""U-Net (Ronneberger et al. 2015) under full supervision: the paper's upper bound, the one method that reads masks."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.methods.base import (
    Batch,
    Losses,
    MapRunner,
    Method,
    MethodSettings,
    Output,
    SlideMapper,
    SlideMask,
    SlideOutput,
    at_once,
    register,
)
from histolumen.nets.backbones import Backbone
from histolumen.nets.geometry import Grid
from histolumen.nets.unet import UNet


class UNetSettings(MethodSettings):
    """Full supervision; the network brings its own encoder, so only the backbone's input scaling is used."""

    name: Literal["unet"] = "unet"
    """The method."""


@register(UNetSettings)
class SupervisedUNet(Method):
    """Foreground or background, pixel by pixel. It says nothing about the image's class."""

    reads_masks = True
    classifies = False

    def __init__(self, settings: UNetSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone.scaling_only()
        self.network = UNet()
        self.classes = classes

    def losses(self, batch: Batch) -> Losses:
        if batch.masks is None:
            raise ValueError("full supervision needs masks")
        logits = self.network(self.backbone.normalise(batch.images))
        return Losses({"pixels": F.cross_entropy(logits, batch.masks[:, 0].long())})

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        logits = run(self.network, self.backbone.normalise(images))
        probs = images.new_full((len(images), self.classes), 1 / self.classes)
        return Output(probs, logits.softmax(1)[:, 1:])

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:
        maps = slide.maps(lambda tile, _: self.network(self.backbone.normalise(tile)), Grid(1, 0))
        probs = torch.full((1, self.classes), 1 / self.classes)
        return SlideOutput(probs, SlideMask(maps, lambda logits: logits.softmax(1)[:, 1:]))
