"""U-Net (Ronneberger et al. 2015) with full supervision: the paper's upper bound, the only method that reads masks."""

from typing import Literal

import torch
from torch.nn import functional as F

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FeatureGeometry
from histolumen.methods.base import Losses, Method, MethodSettings, register
from histolumen.methods.view import Answer, Layer, Mask, View
from histolumen.nets.unet import UNet, Upsampling


class UNetSettings(MethodSettings):
    """Full supervision; the network has its own encoder, so only the backbone's input scaling is used."""

    name: Literal["unet"] = "unet"
    """The method."""
    upsampling: Upsampling = "nearest"
    """How a level of the decoder doubles the resolution: by repeating values after its convolutions (`nearest`, the
    paper), or by interpolation before them (`bilinear`, runs of earlier versions)."""


@register(UNetSettings)
class SupervisedUNet(Method):
    """Segments foreground and background; does not predict the class of the image."""

    reads_masks = True
    classifies = False

    def __init__(self, settings: UNetSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone.scaling_only()
        self.network = UNet(settings.upsampling)
        self.classes = classes

    def losses(self, batch: Batch) -> Losses:
        if batch.masks is None:
            raise ValueError("method unet needs batches with masks")
        logits = self.network(self.backbone.normalise(batch.images))
        return Losses({"pixels": F.cross_entropy(logits, batch.masks[:, 0].long())})

    def predict(self, view: View) -> Answer:
        logits = view.maps(self.network, FeatureGeometry.of_cells(1))
        probs = torch.full((view.count, self.classes), 1 / self.classes)
        return Answer(probs, Mask((Layer(logits, lambda values: values.softmax(1)[:, 1:]),)))
