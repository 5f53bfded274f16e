"""CAM-LSE (Pinheiro & Collobert 2015; Sun et al. 2016): log-sum-exp, between the mean and the maximum."""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import register
from histolumen.methods.class_maps import ClassMapMethod, MapSettings


class CamLseSettings(MapSettings):
    """CAM with log-sum-exp pooling."""

    name: Literal["cam_lse"] = "cam_lse"
    """The method."""
    r: float = Field(default=10.0, gt=0)
    """Sharpness: approaches the mean for small r and the maximum for large r."""


@register(CamLseSettings)
class CamLse(ClassMapMethod):
    """score = 1/r log(mean(exp(r * map)))."""

    def __init__(self, settings: CamLseSettings, backbone: Backbone, classes: int):
        super().__init__(settings, backbone, classes)
        self.r = settings.r

    def scores(self, maps: Tensor) -> Tensor:
        flat = maps.flatten(2)
        return ((self.r * flat).logsumexp(2) - math.log(flat.shape[2])) / self.r
