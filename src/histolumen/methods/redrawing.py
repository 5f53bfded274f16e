"""Refinement of a mask that comes from class maps (`refine` without a decoder)."""

import torch
from torch import Tensor, nn

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FeatureGeometry
from histolumen.encoders.tapping import tapped
from histolumen.errors import ConfigError
from histolumen.methods.masked_features import mask_at
from histolumen.methods.view import Layer, Mask, View, appended
from histolumen.nets.discriminant import Refinement
from histolumen.nets.pyramid import channels_of, layers_at

_STRIDES = (4, 8)  # of features that show the boundary of a gland
_TINY = 1e-6


class Redrawing(nn.Module):
    """Redraws the boundary of a mask by the features of strides 4 and 8 of each image; has no weights.

    Class maps have no finer features beside them, so the early layers of the backbone run once more.

    Args:
        backbone: provides the features; not stored.
    """

    def __init__(self, backbone: Backbone):
        super().__init__()
        self._layers = tuple(layer for layer in layers_at(backbone, _STRIDES) if layer is not None)
        if len(self._layers) < len(_STRIDES) or backbone.stride <= _STRIDES[-1]:
            raise ConfigError(
                "method.refine needs features of strides 4 and 8, and this backbone has none before its last ones: set "
                "method.refine=false, or method.mask_from=decoder, which can do without them"
            )
        self.refinement = Refinement(channels_of(backbone, self._layers))

    def redrawn(self, mask: Mask, view: View, backbone: Backbone) -> Mask:
        """The refined mask, as maps of stride 4."""
        geometry = FeatureGeometry.of_cells(_STRIDES[0])
        maps = view.maps(lambda seen: self._logits(seen, backbone), geometry, mask, masking=appended)
        return Mask((Layer(maps, finish=torch.sigmoid),))

    def _logits(self, pixels_and_mask: Tensor, backbone: Backbone) -> Tensor:
        X = pixels_and_mask[:, :3]
        with tapped(backbone.trunk, *self._layers) as levels:
            backbone.up_to(self._layers[-1], X)
        share = mask_at(pixels_and_mask[:, 3:], levels[0], _STRIDES[0]).clamp(_TINY, 1 - _TINY)
        return self.refinement(torch.log(share / (1 - share)), levels, tissue_at(X, share, _STRIDES[0]))


def tissue_at(X: Tensor, like: Tensor, stride: int) -> Tensor:
    """Share of the pixels of each position that are not glass, which is painted over with the mean colour."""
    painted_over = (X == 0).all(1, keepdim=True)
    return mask_at((~painted_over).to(X), like, stride)
