"""CAM-Avg (Zhou et al. 2016): a class score is the mean of its map."""

from typing import Literal

from torch import Tensor

from histolumen.methods.base import register
from histolumen.methods.class_maps import ClassMapMethod, MapSettings


class CamAvgSettings(MapSettings):
    """CAM with average pooling."""

    name: Literal["cam_avg"] = "cam_avg"
    """The method."""


@register(CamAvgSettings)
class CamAvg(ClassMapMethod):
    """Average pooling of the class maps."""

    def scores(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))
