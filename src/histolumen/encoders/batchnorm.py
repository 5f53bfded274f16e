"""Batch normalisation when whole, foreground and background images share one backbone.

X, X+ and X- have different distributions. `cases(...)` declares which of them a batch consists of, in equal parts. Each
part is normalised by its own batch statistics, so one batch of X+ and X- is equivalent to two separate passes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Statistics = Literal["shared", "separate", "frozen"]


class Case(StrEnum):
    """Kind of images in a batch: X, X+ or X-."""

    WHOLE = "whole"
    FOREGROUND = "foreground"
    BACKGROUND = "background"


_current: ContextVar[tuple[Case, ...]] = ContextVar("cases", default=(Case.WHOLE,))
_traced: tuple[Case, ...] = (Case.WHOLE,)  # the same for torch.compile, which cannot read context variables


@contextmanager
def cases(*parts: Case) -> Iterator[None]:
    """Within the block, batches consist of `parts`, concatenated in this order and of equal size.

    Without parts the batch is a placeholder: it is not normalised, and no statistics are updated.
    """
    global _traced  # noqa: PLW0603 - read only where a training is compiled
    token, before = _current.set(parts), _traced
    _traced = parts
    try:
        yield
    finally:
        _current.reset(token)
        _traced = before


def current_cases() -> tuple[Case, ...]:
    """The cases that the current batch consists of."""
    return _current.get()


class _PartwiseNorm(torch.autograd.Function):
    """Training-mode batch normalisation of equal parts of a batch, each by its own statistics.

    The same as `cat([batch_norm(part) for part in chunk(x)])`, but each part is written directly into the output: `cat`
    would copy all activations once more in the forward and the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, momentum: float | None, eps: float, *statistics: Tensor
    ) -> Tensor:
        """Normalise; `statistics` are running means and variances, part by part, updated in place."""
        count = len(statistics) // 2
        out, saved = torch.empty_like(x), []
        for k, (part, target) in enumerate(zip(x.chunk(count), out.chunk(count), strict=True)):
            mean, var = statistics[2 * k : 2 * k + 2]
            batch = [weight.new_empty(x.shape[1]) for _ in range(2)]  # in single precision, whatever x has
            torch.ops.aten.native_batch_norm.out(
                part, weight, bias, mean, var, True, momentum or 0.0, eps,
                out=target, save_mean=batch[0], save_invstd=batch[1],
            )  # fmt: skip
            saved += batch
        ctx.eps = eps
        ctx.save_for_backward(x, weight, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input, weight and bias."""
        x, weight, *saved = ctx.saved_tensors
        count, gradient = len(saved) // 2, gradients[0].contiguous(memory_format=_layout(x))
        of_input, of_weight, of_bias = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
        parts = zip(gradient.chunk(count), x.chunk(count), of_input.chunk(count), strict=True)
        for k, (gradient_part, part, target) in enumerate(parts):
            own = [torch.empty_like(weight) for _ in range(2)]
            torch.ops.aten.native_batch_norm_backward.out(
                gradient_part, part, weight, None, None, *saved[2 * k : 2 * k + 2], True, ctx.eps, [True] * 3,
                out0=target, out1=own[0], out2=own[1],
            )  # fmt: skip
            of_weight += own[0]
            of_bias += own[1]
        return of_input, of_weight, of_bias, *[None] * (2 + 2 * count)


def _layout(x: Tensor) -> torch.memory_format:
    return torch.contiguous_format if x.is_contiguous() else torch.channels_last


class CaseBatchNorm(nn.Module):
    """A BatchNorm layer with shared affine weights, and running statistics per case (`separate`) or for all cases."""

    def __init__(self, norm: nn.BatchNorm2d, statistics: Statistics):
        super().__init__()
        self.norm = norm
        self.statistics = statistics
        self._kept = statistics == "frozen"
        if statistics == "separate":  # whole images use those of the layer itself
            for case in (Case.FOREGROUND, Case.BACKGROUND):
                self.register_buffer(f"{case}_mean", _buffer(norm.running_mean).clone())
                self.register_buffer(f"{case}_var", _buffer(norm.running_var).clone())

    def train(self, mode: bool = True) -> "CaseBatchNorm":
        super().train(mode)
        if self._kept:
            self.norm.eval()
        return self

    def keep_statistics(self) -> None:
        """Never update the running statistics, and normalise by them in training too."""
        self._kept = True
        self.norm.eval()

    def forward(self, x: Tensor) -> Tensor:
        compiling, norm = torch.compiler.is_compiling(), self.norm
        parts = _traced if compiling else _current.get()
        if not parts:
            return self._activate(x)
        first = parts[0]
        if norm.training and len(parts) > 1 and not compiling:
            statistics = [buffer for case in parts for buffer in self.running(case)]
            return self._activate(_PartwiseNorm.apply(x, norm.weight, norm.bias, norm.momentum, norm.eps, *statistics))
        if len(parts) > 1 and (self.statistics == "separate" or norm.training):  # copies that a compiler avoids
            chunks = zip(x.chunk(len(parts)), parts, strict=True)
            return self._activate(torch.cat([self._normalise(chunk, case) for chunk, case in chunks]))
        return self._activate(self._normalise(x, first))

    def running(self, case: Case) -> tuple[Tensor, Tensor]:
        """Running mean and variance of a case."""
        if self.statistics == "separate" and case is not Case.WHOLE:
            return getattr(self, f"{case}_mean"), getattr(self, f"{case}_var")
        return _buffer(self.norm.running_mean), _buffer(self.norm.running_var)

    def _normalise(self, x: Tensor, case: Case) -> Tensor:
        norm = self.norm
        mean, var = self.running(case)
        momentum = norm.momentum or 0.0
        return F.batch_norm(x, mean, var, norm.weight, norm.bias, norm.training, momentum, norm.eps)

    @property
    def activation(self) -> nn.Module | None:
        """The activation that timm fuses into the layer (BatchNormAct2d)."""
        return getattr(self.norm, "act", None)

    def _activate(self, x: Tensor) -> Tensor:
        return self.activation(x) if self.activation is not None else x


def _buffer(value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError("BatchNorm without running statistics cannot predict single images")
    return value


def split_statistics(network: nn.Module, statistics: Statistics) -> None:
    """Replace, in place, every BatchNorm layer of `network` by a `CaseBatchNorm` around it."""
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(network, name, CaseBatchNorm(child, statistics))
        else:
            split_statistics(child, statistics)
