"""CAM-Max (Oquab et al. 2015): a class score is the maximum of its map."""

from typing import Literal

from torch import Tensor

from histolumen.methods.base import register
from histolumen.methods.class_maps import ClassMapMethod, MapSettings


class CamMaxSettings(MapSettings):
    """CAM with maximum pooling."""

    name: Literal["cam_max"] = "cam_max"
    """The method."""


@register(CamMaxSettings)
class CamMax(ClassMapMethod):
    """Maximum pooling of the class maps."""

    def scores(self, maps: Tensor) -> Tensor:
        return maps.amax((2, 3))
