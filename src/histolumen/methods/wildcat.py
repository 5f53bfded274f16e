"""WILDCAT (Durand et al. 2017): several maps per class; the score combines the highest and the lowest positions."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from histolumen.methods.base import register
from histolumen.methods.class_maps import ClassMapMethod, MapSettings
from histolumen.nets.pooling import WildcatHead


class PoolingSettings(MapSettings):
    """WILDCAT pooling of Max-Min and PN; the defaults are the paper's for GlaS."""

    modalities: int = Field(default=5, ge=1)
    """WILDCAT maps per class."""
    kmax: float = Field(default=0.3, gt=0)
    """WILDCAT: share of positions used as positive evidence."""
    kmin: float = Field(default=0.0, ge=0)
    """WILDCAT: share of positions used as negative evidence."""
    alpha: float = 0.0
    """WILDCAT: weight of the negative evidence."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """WILDCAT: dropout on the pooled activations."""

    def head(self, channels: int, classes: int) -> WildcatHead:
        """A head with this pooling."""
        return WildcatHead(channels, classes, self.modalities, self.kmax, self.kmin, self.alpha, self.dropout)


class WildcatSettings(PoolingSettings):
    """WILDCAT pooling; the defaults are those of the survey (Rony et al.)."""

    name: Literal["wildcat"] = "wildcat"
    """The method."""
    modalities: int = Field(default=4, ge=1)
    """Maps per class."""
    kmax: float = Field(default=0.1, gt=0)
    """Share of positions used as positive evidence."""
    kmin: float = Field(default=0.1, ge=0)
    """Share of positions used as negative evidence."""
    alpha: float = 0.6
    """Weight of the negative evidence."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the pooled activations."""


@register(WildcatSettings)
class Wildcat(ClassMapMethod):
    """Score = mean of the highest positions + alpha * mean of the lowest."""

    settings: PoolingSettings
    head: WildcatHead

    def make_head(self, channels: int, classes: int) -> WildcatHead:
        return self.settings.head(channels, classes)

    def maps(self, features: Tensor) -> Tensor:
        return self.head.maps(features)

    def scores(self, maps: Tensor) -> Tensor:
        return self.head.scores(maps)
