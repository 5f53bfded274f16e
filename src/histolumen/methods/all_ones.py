"""All-ones: everything is foreground. The paper's lower bound: F1+ = mean(2a / (1 + a)) for foreground shares a."""

from typing import Literal

import torch
from torch import Tensor

from histolumen.methods.base import Batch, Losses, MapRunner, Method, MethodSettings, Output, at_once, register
from histolumen.nets.backbones import Backbone


class AllOnesSettings(MethodSettings):
    """Nothing to set."""

    name: Literal["all_ones"] = "all_ones"
    """The method."""


@register(AllOnesSettings)
class AllOnes(Method):
    """Learns nothing, answers at once."""

    classifies = False

    def __init__(self, settings: AllOnesSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone.scaling_only()
        self.classes = classes

    def losses(self, batch: Batch) -> Losses:
        return Losses({"nothing": batch.images.new_zeros(())})

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:  # noqa: ARG002 - there is no map to run
        probs = images.new_full((len(images), self.classes), 1 / self.classes)
        return Output(probs, torch.ones_like(images[:, :1]))
