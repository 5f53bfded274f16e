"""Convolutions by oneDNN with an activation applied while the result is written; for prediction on a CPU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
    nn.SiLU: ("swish", []),
}
"""Activations that oneDNN applies."""
WORTH_PACKING = 2**18
"""Number of weights from which on a layer gains by packed ones; smaller ones are copied in no time."""
_PACKED_SIZES = 2  # sizes of inputs for which the packed weights of a layer are kept; each is a copy of them


def can_run(x: Tensor) -> bool:
    """Whether the operator takes this input. It has no gradient, which LayerCAM needs."""
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_grad_enabled()
    available = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return plain and available and not torch.is_autocast_enabled("cpu")


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    activation: nn.Module | None = None,
) -> Tensor:
    """The convolution of `x`, which is made channels last, followed by an activation of `ACTIVATIONS`."""
    name, numbers = ("none", []) if activation is None else ACTIVATIONS[type(activation)]
    x = x.contiguous(memory_format=torch.channels_last)
    sizes = list(padding), list(stride), list(dilation)
    return torch.ops.mkldnn._convolution_pointwise(x, weight, bias, *sizes, groups, name, numbers, "")


class PackedKernel:
    """The weight of a convolution in the layout that oneDNN computes with.

    oneDNN would copy the weight into that layout in every call. The layout depends on the processor and on the size of
    the input; with one that does not fit, a convolution takes up to fifteen times as long (docs/performance.md). So
    there is a copy for each of the last sizes.

    Args:
        weight: [out, in, h, w]; must not change afterwards.
        padding: of the convolution, as are `stride` and `dilation`.
    """

    def __init__(
        self,
        weight: Tensor,
        padding: Sequence[int],
        stride: Sequence[int] = (1, 1),
        dilation: Sequence[int] = (1, 1),
    ):
        self._weight = weight.detach().contiguous(memory_format=torch.channels_last)
        self._sizes = list(padding), list(stride), list(dilation)
        self._packed: dict[torch.Size, Tensor] = {}

    def fitting(self, x: Tensor) -> Tensor:
        """The weight for an input of this size."""
        kept, size = self._packed, x.shape
        packed = kept.get(size)
        if packed is None:
            packed = torch.ops.mkldnn._reorder_convolution_weight(self._weight, *self._sizes, 1, list(size))
            # a new dictionary, since other threads may read the old one
            self._packed = {size: packed} if len(kept) == _PACKED_SIZES else {**kept, size: packed}
        return packed

    def __getstate__(self) -> dict[str, Any]:  # packed weights can be neither copied nor pickled
        return self.__dict__ | {"_packed": {}}
