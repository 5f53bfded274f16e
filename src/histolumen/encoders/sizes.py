"""Image sizes that a network accepts."""

import torch
from torch import Tensor

from histolumen.data.transforms import SIZE_MULTIPLE
from histolumen.encoders.families import SUITABLE
from histolumen.encoders.trunk import Trunk
from histolumen.encoders.weights import first_line
from histolumen.errors import ConfigError

_MULTIPLES = (1, SIZE_MULTIPLE, 32, 64, 128, 224, 256)  # the last two: windows of 7 and 8 positions at stride 32
_ANY_SIZE = (83, 53)  # sides without a common factor


@torch.no_grad()
def find_required_multiple(trunk: Trunk, name: str) -> int:
    """The smallest multiple that image sides must have, found by running the network on a few small images.

    Args:
        trunk: a network, which may already declare its multiple.
        name: name of the backbone, for the error message.
    """
    was_training = trunk.training
    trunk.eval()
    try:
        return _find(trunk, name)
    finally:
        trunk.train(was_training)


def _find(trunk: Trunk, name: str) -> int:
    problem = ""
    declared = trunk.required_multiple > 1
    for multiple in (trunk.required_multiple,) if declared else _MULTIPLES:
        height, width = _ANY_SIZE if multiple == 1 else (multiple, 3 * multiple)
        try:
            features = trunk.features(torch.zeros(1, 3, height, width))
        except Exception as error:  # noqa: BLE001 - networks raise all kinds of errors
            problem = first_line(error)
        else:
            problem = _shape_problem(trunk, features, (height, width))
            if not problem:
                return multiple
    raise ConfigError(f"backbone {name} does not accept arbitrary image sizes ({problem}); choose another {SUITABLE}")


def _shape_problem(trunk: Trunk, features: Tensor, size: tuple[int, int]) -> str:
    """What is wrong with the shape of the features of an image of this size; empty if nothing."""
    covering = [-(-side // trunk.stride) for side in size]
    inside = [side // trunk.stride for side in size]  # ConvNeXt drops an incomplete patch at the border
    if list(features.shape[1:]) not in ([trunk.channels, *covering], [trunk.channels, *inside]):
        return f"its features have the shape {list(features.shape[1:])}, not {[trunk.channels, *covering]}"
    return ""
