"""All-ones: every pixel is foreground. The paper's lower bound: F1+ = mean(2a / (1 + a)) for foreground shares a."""

from typing import Literal

import torch

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import Losses, Method, MethodSettings, register
from histolumen.methods.view import Answer, Mask, View


class AllOnesSettings(MethodSettings):
    """No settings."""

    name: Literal["all_ones"] = "all_ones"
    """The method."""


@register(AllOnesSettings)
class AllOnes(Method):
    """A constant mask without any network."""

    classifies = False

    def __init__(self, settings: AllOnesSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone.scaling_only()
        self.classes = classes

    def losses(self, batch: Batch) -> Losses:
        return Losses({"nothing": batch.images.new_zeros(())})

    def predict(self, view: View) -> Answer:
        return Answer(torch.full((view.count, self.classes), 1 / self.classes), Mask(()))
