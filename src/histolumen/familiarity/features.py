"""What a backbone sees in an image: features of a middle layer, pooled over the tissue.

Layers near the output of a trained network keep little but the class, so that skin, photographs and noise look like one
of the classes; features of stride 8 still describe the structure.
"""

import numpy as np
import torch
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.tapping import layer_of_stride
from histolumen.encoders.trunk import NoTrunk
from histolumen.errors import ConfigError

NO_LAYER = "none"
"""The layer of a method that has its own network: only colour and texture are described."""
OUTPUT = "output"
"""The layer of a network without one of stride 8, such as a vision transformer."""
_STRIDE = 8
_HALF, _MIN_SIDE = 0.5, 32  # images are halved, which costs a quarter of a pass and widens the receptive field
_MAX_WHITE = 0.3  # share of a position's cell; positions with more are not tissue
_MIN_POSITIONS = 4  # on tissue; with fewer, all positions are pooled


def described_layer(backbone: Backbone) -> str:
    """Name of the layer whose features describe an image; the backbone must be on the CPU."""
    if isinstance(backbone.trunk, NoTrunk):
        return NO_LAYER
    try:
        return OUTPUT if backbone.single_stride else layer_of_stride(backbone.trunk, _STRIDE)
    except ConfigError:
        return OUTPUT


@torch.inference_mode()
def pooled_features(backbone: Backbone, layer: str, pixels: np.ndarray, white: np.ndarray) -> np.ndarray:
    """Mean and standard deviation of each channel over the tissue, [2 x channels].

    Args:
        backbone: in evaluation mode.
        layer: from `described_layer`.
        pixels: RGB [H, W, 3] uint8 at working size.
        white: its white fields [H, W] bool, which are no tissue.
    """
    if layer == NO_LAYER:
        return np.zeros(0)
    image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None].to(backbone.mean.device).float() / 255
    multiple = backbone.size_multiple
    sides = [max(round(_HALF * side / multiple) * multiple, multiple, _MIN_SIDE) for side in image.shape[2:]]
    smaller = backbone.normalise(F.interpolate(image, size=sides, mode="bilinear", antialias=True))
    maps = backbone(smaller) if layer == OUTPUT else backbone.up_to(layer, smaller)
    features = maps[0].float().flatten(1)
    share = F.interpolate(torch.from_numpy(white)[None, None].float(), size=maps.shape[2:], mode="area").flatten()
    on_tissue = features[:, (share <= _MAX_WHITE).to(features.device)]
    positions = on_tissue if on_tissue.shape[1] >= _MIN_POSITIONS else features
    return torch.cat([positions.mean(1), positions.std(1, correction=0)]).double().cpu().numpy()
