"""Batch normalisation when whole, foreground and background images share one backbone.

X, X+ and X- are three different distributions. `cases(...)` tells the layers which of them a batch is made of, in equal
parts; each part is normalised by its own batch statistics, so that running X+ and X- as one batch equals running them
one after the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Statistics = Literal["shared", "separate", "frozen"]


class Case(StrEnum):
    """What the images of a batch show: X, X+ or X-."""

    WHOLE = "whole"
    FOREGROUND = "foreground"
    BACKGROUND = "background"


_current: ContextVar[tuple[Case, ...]] = ContextVar("cases", default=(Case.WHOLE,))


@contextmanager
def cases(*parts: Case) -> Iterator[None]:
    """Within the block, batches consist of `parts`, concatenated in this order and of equal size."""
    token = _current.set(parts)
    try:
        yield
    finally:
        _current.reset(token)


class CaseBatchNorm(nn.Module):
    """A BatchNorm layer with one affine map and running statistics per case (`separate`), or one for all."""

    def __init__(self, norm: nn.BatchNorm2d, statistics: Statistics):
        super().__init__()
        self.norm = norm
        self.statistics = statistics
        if statistics == "separate":  # the whole image keeps the layer's own
            for case in (Case.FOREGROUND, Case.BACKGROUND):
                self.register_buffer(f"{case}_mean", _buffer(norm.running_mean).clone())
                self.register_buffer(f"{case}_var", _buffer(norm.running_var).clone())

    def train(self, mode: bool = True) -> "CaseBatchNorm":
        super().train(mode)
        if self.statistics == "frozen":
            self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        parts = _current.get()
        if len(parts) == 1 or self.statistics == "frozen" or (self.statistics == "shared" and not self.training):
            return self._activate(self._normalise(x, parts[0]))
        chunks = x.chunk(len(parts))
        return self._activate(
            torch.cat([self._normalise(chunk, case) for chunk, case in zip(chunks, parts, strict=True)])
        )

    def _normalise(self, x: Tensor, case: Case) -> Tensor:
        norm, own = self.norm, self.statistics == "separate" and case is not Case.WHOLE
        return F.batch_norm(
            x,
            _buffer(getattr(self, f"{case}_mean") if own else norm.running_mean),
            _buffer(getattr(self, f"{case}_var") if own else norm.running_var),
            norm.weight,
            norm.bias,
            training=norm.training,
            momentum=norm.momentum or 0.0,
            eps=norm.eps,
        )

    def _activate(self, x: Tensor) -> Tensor:
        # timm fuses the activation into the layer (BatchNormAct2d)
        activation = getattr(self.norm, "act", None)
        return activation(x) if activation is not None else x


def _buffer(value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError("BatchNorm without running statistics cannot be used for single images")
    return value


def split_statistics(network: nn.Module, statistics: Statistics) -> None:
    """Replace, in place, every BatchNorm layer of `network` by a `CaseBatchNorm` around it."""
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(network, name, CaseBatchNorm(child, statistics))
        else:
            split_statistics(child, statistics)
