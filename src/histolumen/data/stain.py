"""Stain augmentation: varies the amounts of haematoxylin, eosin and residual stain, as between laboratories."""

from typing import Any

import torch
from torch import Tensor

from histolumen.vision import tv_tensors, v2

# optical density of haematoxylin, eosin and DAB in red, green and blue (Ruifrok and Johnston 2001)
_STAINS = torch.tensor([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]], dtype=torch.float64)
_SHIFT = 0.1  # range of the additive change relative to the multiplicative one


class StainJitter(v2.Transform):
    """Scale and shift the amount of each stain of an 8-bit image at random (Tellez et al. 2018).

    Args:
        strength: amounts are multiplied by up to 1 +- strength and shifted by up to a tenth of it.
    """

    def __init__(self, strength: float):
        super().__init__()
        self.strength = strength

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:  # noqa: ARG002 - torchvision's signature
        scale, shift = (self.strength * (2 * torch.rand(2, 3) - 1)).unbind()
        return {"scale": 1 + scale, "shift": _SHIFT * shift}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if not isinstance(inpt, tv_tensors.Image):
            return inpt
        changed = restain(inpt.as_subclass(Tensor), params["scale"], params["shift"])
        return tv_tensors.wrap(changed, like=inpt)  # pyright: ignore[reportCallIssue]


def restain(image: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """8-bit RGB [3, H, W] with each stain's amount multiplied by `scale` [3] and increased by `shift` [3]."""
    to_stains = torch.linalg.inv(_STAINS).float()
    density = -torch.log((image.float() + 1) / 256).flatten(1).T  # [pixels, 3]
    amounts = (density @ to_stains) * scale + shift
    colours = 256 * torch.exp(-(amounts @ _STAINS.float())) - 1
    return colours.T.reshape(image.shape).round().clamp(0, 255).to(torch.uint8)
