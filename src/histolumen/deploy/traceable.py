"""Modules whose sizes are Python numbers, replaced by equal ones whose sizes a traced graph computes."""

import copy
from typing import cast

import torch
from torch import Tensor, nn

from histolumen.deploy.resizing import antialiased, nearest, padded_to, sides
from histolumen.methods.base import Method
from histolumen.nets.decoder import Decoder
from histolumen.nets.pooling import WildcatHead
from histolumen.nets.unet import UpStep


def traceable(method: Method) -> Method:
    """A copy of a method, for prediction, whose modules can be traced for images of any size."""
    method = copy.deepcopy(method).cpu().eval().requires_grad_(False)
    for module in method.modules():
        for ordinary, replacement in _REPLACEMENTS.items():
            if type(module) is ordinary:
                module.__class__ = replacement  # same weights and settings, another computation of sizes
        if isinstance(module, _WildcatHead):
            module.average_modalities()
    return method


class _WildcatHead(WildcatHead):
    def average_modalities(self) -> None:
        """The mean of a class's maps is the map of its mean weights: fewer channels, and no axis to split."""
        layer = self.modality_maps
        weight, bias = (
            nn.Parameter(values.unflatten(0, (-1, self.modalities)).mean(1), requires_grad=False)
            for values in (layer.weight, cast("Tensor", layer.bias))
        )
        layer.weight, layer.bias, layer.out_channels = weight, bias, len(weight)

    def maps(self, features: Tensor) -> Tensor:
        return self.modality_maps(features)

    def _mean_of_share(self, class_maps: Tensor, share: float) -> Tensor:
        height, width = sides(class_maps)
        total = height * width
        count = (share * total.float() + 0.5).floor().long() if share < 1 else torch.tensor(int(share))
        count = torch.minimum(count.clamp(min=1), total)
        return torch.topk(class_maps.flatten(2), count, dim=2).values.mean(2)  # pyright: ignore[reportArgumentType] - traced


class _Decoder(Decoder):
    def _covered(self, images: Tensor, features: Tensor) -> Tensor:
        height, width = sides(features)
        return padded_to(images, (self.stride * height, self.stride * width))

    def _shrunk(self, images: Tensor, like: Tensor) -> Tensor:
        return antialiased(images, sides(like))


class _UpStep(UpStep):
    def _repeated(self, x: Tensor, like: Tensor) -> Tensor:
        return nearest(x, sides(like))


_REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    WildcatHead: _WildcatHead,
    Decoder: _Decoder,
    UpStep: _UpStep,
}
