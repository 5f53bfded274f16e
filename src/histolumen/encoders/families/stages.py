"""Networks whose stages halve the resolution: convolutional networks and hierarchical transformers.

They are cut rather than dilated: inner features are local, as a mask needs them, and the rest of the network is not
computed.
"""

from typing import Any, cast

from torch import Tensor, nn

from histolumen.encoders.families.base import (
    SUITABLE,
    Architecture,
    Cut,
    Family,
    pruned,
    register_family,
)
from histolumen.encoders.trunk import Trunk
from histolumen.encoders.weights import with_nested_names
from histolumen.errors import ConfigError

_SETTABLE = (8, 16, 32)


class WholeTrunk(Trunk):
    """A network up to its last feature map."""

    def __init__(self, network: nn.Module, stride: int):
        super().__init__()
        self.network, self.stride = network, stride
        self.channels = cast("int", network.num_features)
        self.channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"

    def features(self, images: Tensor) -> Tensor:
        output = self.network.forward_features(images)  # type: ignore[operator] # timm's interface
        return output.permute(0, 3, 1, 2) if self.channels_last else output


class StageTrunk(Trunk):
    """A network up to one of its inner feature levels."""

    def __init__(self, network: nn.Module, level: int, stride: int, channels: int):
        super().__init__()
        self.network = pruned(network, level, keep_norm=False)
        self.level, self.stride, self.channels = level, stride, channels
        self.register_load_state_dict_pre_hook(_accept_flattened_names)

    def features(self, images: Tensor) -> Tensor:
        intermediates = self.network.forward_intermediates(  # type: ignore[operator] # timm's interface
            images, indices=[self.level], output_fmt="NCHW", intermediates_only=True
        )
        return intermediates[-1]


@register_family
class Stages(Family):
    """Networks with features of several strides and `forward_intermediates`."""

    def fits(self, architecture: Architecture) -> bool:
        return architecture.has_intermediates and len(set(architecture.strides)) > 1

    def check(self, architecture: Architecture, cut: Cut) -> None:
        super().check(architecture, cut)
        if cut.stride not in architecture.strides:
            settable = [str(stride) for stride in _SETTABLE if stride in architecture.strides]
            advice = f"set backbone.output_stride={' or '.join(settable)}, or choose" if settable else "choose"
            raise ConfigError(
                f"backbone {architecture.name} has no features of stride {cut.stride}; {advice} another backbone "
                f"{SUITABLE}"
            )

    def all_options(self, architecture: Architecture) -> dict[str, Any]:
        any_size = {"strict_img_size": False} if architecture.accepts("strict_img_size") else {}  # Swin
        return {**architecture.options, **any_size}

    def trunk(self, network: nn.Module, architecture: Architecture, cut: Cut) -> Trunk:
        if is_whole(architecture, cut):
            return WholeTrunk(network, cut.stride)
        level = deepest(architecture, cut)
        return StageTrunk(network, level, cut.stride, architecture.channels(level))


def deepest(architecture: Architecture, cut: Cut) -> int:
    """The last feature level of the stride of the cut."""
    return max(level for level, stride in enumerate(architecture.strides) if stride == cut.stride)


def is_whole(architecture: Architecture, cut: Cut) -> bool:
    """Whether nothing is cut off: the network ends in a map of the requested stride."""
    return cut.stride == max(architecture.strides) and architecture.ends_in_map


def _accept_flattened_names(trunk: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Load checkpoints of earlier versions, whose names joined the first two parts: `stages_0` for `stages.0`."""
    start = f"{prefix}network."
    old = {name.removeprefix(start): state.pop(name) for name in list(state) if name.startswith(start)}
    wanted = cast("nn.Module", trunk.network).state_dict()
    state.update({start + name: value for name, value in with_nested_names(old, wanted).items()})
