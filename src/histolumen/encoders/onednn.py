"""Convolutions by oneDNN with an activation applied while the result is written; for prediction on a CPU."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
    nn.SiLU: ("swish", []),
}
"""Activations that oneDNN applies."""


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


def packs(conv: nn.Conv2d) -> bool:
    """Whether the weights of a convolution can be packed.

    Those of 1 x 1 pixels have another layout for each size of images; one that does not fit takes ten times as long.
    """
    return conv.groups == 1 and max(conv.kernel_size) > 1


def packed(
    weight: Tensor, padding: Sequence[int], stride: Sequence[int] = (1, 1), dilation: Sequence[int] = (1, 1)
) -> Tensor:
    """The weight in the layout that oneDNN computes with, into which it would otherwise copy it in every call."""
    weight = weight.detach().contiguous(memory_format=torch.channels_last)
    return torch.ops.mkldnn._reorder_convolution_weight(weight, list(padding), list(stride), list(dilation), 1, None)
