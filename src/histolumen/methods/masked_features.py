"""Masks on the features of an image instead of the image itself (`mask_at: features`)."""

from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.tapping import layer_of_stride
from histolumen.errors import ConfigError


def masked_layer(backbone: Backbone, stride: int) -> str:
    """The last layer of `stride`, which must leave later layers to run."""
    if backbone.single_stride or stride >= backbone.stride:
        kind = "all layers of this backbone have" if backbone.single_stride else "this backbone ends at"
        raise ConfigError(
            f"method.mask_at=features with mask_stride={stride}: {kind} stride {backbone.stride}, so that no layers of "
            "another stride would follow; use a smaller method.mask_stride, or method.mask_at=image"
        )
    return layer_of_stride(backbone.trunk, stride)


def mask_at(mask: Tensor, features: Tensor, stride: int) -> Tensor:
    """A soft mask at the size of features: the mean over the pixels of each position."""
    small = F.avg_pool2d(mask, stride, ceil_mode=True)  # unlike an interpolation, of any size in an exported graph
    if small.shape[2:] != features.shape[2:]:  # networks that do not pad
        small = F.interpolate(mask, size=features.shape[2:], mode="area")
    return small.to(features)
