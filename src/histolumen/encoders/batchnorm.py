"""Batch normalisation when whole, foreground and background images share one backbone.

X, X+ and X- have different distributions. `case_of(...)` declares which of them a pass is over, so that each can have
running statistics of its own.
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
    """Kind of images in a batch: X, X+ or X-."""

    WHOLE = "whole"
    FOREGROUND = "foreground"
    BACKGROUND = "background"


_current: ContextVar[Case | None] = ContextVar("case", default=Case.WHOLE)
_traced: Case | None = Case.WHOLE  # the same for torch.compile, which cannot read context variables


@contextmanager
def case_of(case: Case | None) -> Iterator[None]:
    """Within the block, batches consist of images of this case.

    None stands for a placeholder: it is not normalised, and no statistics are updated.
    """
    global _traced  # noqa: PLW0603 - read only where a training is compiled
    token, before = _current.set(case), _traced
    _traced = case
    try:
        yield
    finally:
        _current.reset(token)
        _traced = before


def current_case() -> Case | None:
    """The case of the current pass."""
    return _current.get()


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

    @property
    def tells_cases_apart(self) -> bool:
        """Whether images of another case in the same batch would change the result in training."""
        return not self._kept or self.statistics == "separate"

    def keep_statistics(self) -> None:
        """Never update the running statistics, and normalise by them in training too."""
        self._kept = True
        self.norm.eval()

    def forward(self, x: Tensor) -> Tensor:
        case = _traced if torch.compiler.is_compiling() else _current.get()
        return self._activate(x if case is None else self._normalise(x, case))

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
