"""How a training computes: precision, memory layout, compiled or not. None of it changes what is computed."""

import shutil

import torch
from torch import nn

from histolumen.config import TrainSettings
from histolumen.encoders.backbone import Backbone
from histolumen.encoders.batchnorm import CaseBatchNorm
from histolumen.errors import ConfigError
from histolumen.methods.base import Method

_BF16_UNITS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instructions of x86 and ARM processors that compute in bfloat16; without them it is emulated, many times slower."""
_COMPILERS = ("g++", "clang++", "c++")


def check_precision(precision: str) -> None:
    """Refuse `train.precision` bf16 on a device that would have to emulate it."""
    if precision == "bf16" and not computes_in_bf16():
        raise ConfigError(
            "train.precision=bf16: this processor cannot compute in bfloat16 and would be many times slower; use "
            "train.precision=32"
        )


def computes_in_bf16() -> bool:
    """Whether the device that trains has instructions for bfloat16."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(unit, False) for unit in _BF16_UNITS)


def memory_layout(method: Method, settings: TrainSettings) -> torch.memory_format:
    """Layout of weights and features: `train.layout`, or the one that is faster for this network.

    Depthwise convolutions do little arithmetic per value, so that their cost is that of moving values, and oneDNN need
    not reorder them in this layout; dense convolutions in single precision gain nothing (docs/performance.md).
    """
    depthwise = any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in method.modules())
    last = settings.layout == "channels_last" or (
        settings.layout == "auto" and (depthwise or settings.precision == "bf16")
    )
    return torch.channels_last if last else torch.contiguous_format


def compile_backbone(backbone: Backbone) -> None:
    """Compile the network in place, for `train.compile`; names of weights stay as they are."""
    if not torch.cuda.is_available() and not any(map(shutil.which, _COMPILERS)):
        raise ConfigError(
            "train.compile=true: no C++ compiler found, which torch.compile needs on a CPU; install one (on Debian and "
            "Ubuntu: apt install g++), or leave train.compile out"
        )
    if any(isinstance(layer, CaseBatchNorm) and layer.statistics != "frozen" for layer in backbone.modules()):
        raise ConfigError(
            "train.compile=true: compiled code cannot update BatchNorm statistics in several passes of one step; set "
            "backbone.statistics=frozen as well, or leave train.compile out"
        )
    backbone.trunk.compile(dynamic=False)
