"""CAM-LSE (Pinheiro & Collobert 2015; Sun et al. 2016): log-sum-exp, between the mean and the maximum."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import register
from histolumen.methods.class_maps import ClassMapMethod, MapSettings
from histolumen.nets.pooling import log_mean_exp


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
        return log_mean_exp(self.r * maps.flatten(2)) / self.r
