"""Convolutions of 3 x 3 pixels with half of the multiplications, for prediction on a CPU: Winograd's F(4, 3) on rows.

Four neighbouring rows of the result depend on six rows of the input and three rows of the kernel: 12 products of rows.
As products of polynomials, evaluated at the points 0, 1, -1, 2, -2 and infinity, they need only six. So six sums of
input rows are convolved with six kernels of one row each, by oneDNN, and sums of the results are the four rows. The
sums cost little where there are many channels (docs/performance.md).

Winograd, Arithmetic complexity of computations (1980); Lavin and Gray, Fast algorithms for convolutional neural
networks (2016).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.encoders import onednn
from histolumen.encoders.onednn import PackedKernel

_ROWS = 4  # of the result that are computed together
_PADDING = (0, 1)  # of a kernel of one row
_CHANNELS = range(64, 257)  # fewer: sums cost more than they save; more: reading twice as many weights does
_POSITIONS = 600  # in smaller maps, the time of a layer is that of reading its weights
_fewest_positions = ContextVar("fewest_positions", default=_POSITIONS)
_VALUES_AT_ONCE = 2**21  # of input and result: what one step writes is in the cache when the next one reads it
_POINTS = (  # rows: the polynomial of the kernel's rows at each point, scaled
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_IN_PLACE: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.ReLU: Tensor.relu_,
    nn.ReLU6: lambda x: x.clamp_(0, 6),
    nn.SiLU: lambda x: F.silu(x, inplace=True),
}


def suits(conv: nn.Conv2d) -> bool:
    """Whether a convolution has the form that can be computed so, and enough channels to gain."""
    form = (conv.kernel_size, conv.stride, conv.dilation, conv.groups) == ((3, 3), (1, 1), (1, 1), 1)
    return form and conv.in_channels in _CHANNELS and conv.out_channels in _CHANNELS


def is_large_enough(x: Tensor) -> bool:
    """Whether a map has enough positions to gain."""
    return x.shape[2] * x.shape[3] >= _fewest_positions.get()


@contextmanager
def at_any_size() -> Iterator[None]:
    """Within the block, small maps are computed so too: a small image then shows what a large one would."""
    token = _fewest_positions.set(0)
    try:
        yield
    finally:
        _fewest_positions.reset(token)


def row_kernels(weight: Tensor) -> list[PackedKernel]:
    """The six kernels of one row [out, in, 1, 3] of a kernel [out, in, 3, 3]."""
    points = torch.tensor(_POINTS, dtype=torch.float64, device=weight.device)
    kernels = torch.einsum("pr,oirc->poic", points, weight.detach().double())
    return [PackedKernel(kernel[:, :, None].to(weight.dtype), _PADDING) for kernel in kernels]


def convolve(
    x: Tensor, kernels: Sequence[PackedKernel], bias: Tensor | None, channels: int, activation: nn.Module | None = None
) -> Tensor:
    """The convolution of `x` with zeros around it, as large as `x`, followed by an activation; channels last.

    Args:
        x: [N, C, H, W], without gradient.
        kernels: of `row_kernels`.
        bias: [channels] or None.
        channels: of the result.
        activation: of `onednn.ACTIVATIONS`, or None.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    height, width = x.shape[2:]
    blocks = -(-height // _ROWS)
    strips = -(-len(x) * blocks * _ROWS * width * (x.shape[1] + channels) // _VALUES_AT_ONCE)
    step = _ROWS * -(-blocks // strips)
    size = len(x), channels, blocks * _ROWS, width
    result = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    for top in range(0, height, step):
        rows = result[:, :, top : top + step]
        bottom = top + rows.shape[2]
        outside = (0, 0, int(top == 0), max(bottom + 1 - height, 0))
        _strip(F.pad(x[:, :, max(top - 1, 0) : bottom + 1], outside), kernels, bias, rows)
        if activation is not None:
            _IN_PLACE[type(activation)](rows)
    return result[:, :, :height]


def _strip(x: Tensor, kernels: Sequence[PackedKernel], bias: Tensor | None, result: Tensor) -> None:
    """Write rows of the result, a multiple of four, from the same rows of the input and one more above and below."""
    last = result.shape[2] - _ROWS
    r0, r1, r2, r3, r4, r5 = (x[:, :, row : row + last + 1 : _ROWS] for row in range(_ROWS + 2))
    even, odd = torch.sub(r4, r2, alpha=4), torch.sub(r3, r1, alpha=4)
    at_1 = _convolve_rows(even + odd, kernels[1], bias)  # which takes part in all four rows
    at_minus_1 = _convolve_rows(even.sub_(odd), kernels[2])
    even, odd = r4 - r2, r3 - r1
    at_2 = _convolve_rows(torch.add(even, odd, alpha=2), kernels[3])
    at_minus_2 = _convolve_rows(even.sub_(odd, alpha=2), kernels[4])
    difference_1, sum_1 = at_1 - at_minus_1, at_1.add_(at_minus_1)
    difference_2, sum_2 = at_2 - at_minus_2, at_2.add_(at_minus_2)
    first, second, third, fourth = (result[:, :, row::_ROWS] for row in range(_ROWS))
    torch.add(difference_1, difference_2, alpha=2, out=second)
    torch.add(sum_1, sum_2, alpha=4, out=third)
    at_0 = _convolve_rows(torch.add(r4, r0, alpha=4).sub_(r2, alpha=5), kernels[0])
    torch.add(sum_1.add_(sum_2), at_0, out=first)
    at_infinity = _convolve_rows(torch.add(r5, r1, alpha=4).sub_(r3, alpha=5), kernels[5])
    torch.add(difference_1.add_(difference_2, alpha=8), at_infinity, out=fourth)


def _convolve_rows(x: Tensor, kernel: PackedKernel, bias: Tensor | None = None) -> Tensor:
    return onednn.convolve(x, kernel.fitting(x), bias, _PADDING)
