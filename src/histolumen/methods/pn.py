"""PN (Kervadec et al. 2019): size constraints from image labels alone (presence / absence).

A present class covers at least one position, an absent class none. As the paper notes, the size of the present class
has no upper bound.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from histolumen import losses
from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import Losses, register
from histolumen.methods.wildcat import PoolingSettings, Wildcat


class PnSettings(PoolingSettings):
    """WILDCAT pooling with a size penalty; the defaults are the paper's for GlaS."""

    name: Literal["pn"] = "pn"
    """The method."""
    lambda_: float = Field(default=1e-5, alias="lambda", ge=0)
    """Weight of the size penalty."""


@register(PnSettings)
class Pn(Wildcat):
    """Cross-entropy + lambda * size penalty."""

    def __init__(self, settings: PnSettings, backbone: Backbone, classes: int):
        super().__init__(settings, backbone, classes)
        self.lambda_ = settings.lambda_

    def losses(self, batch: Batch) -> Losses:
        maps = self.maps(self.backbone(self.backbone.normalise(batch.images)))
        scores = self.scores(maps)
        terms = {
            "classification": losses.cross_entropy(scores, batch.labels),
            "size": self.lambda_ * presence_penalty(maps, batch.labels),
        }
        return Losses(terms, scores)


def presence_penalty(maps: Tensor, labels: Tensor) -> Tensor:
    """Squared violation of "present: size >= 1, absent: size <= 0", sizes in positions, averaged over the batch."""
    sizes = maps.softmax(1).sum((2, 3))  # [B, C]
    present = F.one_hot(labels, maps.shape[1]).bool()
    return F.relu(1 - sizes).square().where(present, sizes.square()).sum(1).mean()
