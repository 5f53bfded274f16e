"""The fastest form of a method that gives the same predictions: a copy with BatchNorm folded into convolutions.

The method itself is never changed: it may be trained further, evaluated or saved. The copy shares all other tensors
with it and is made again when a weight has changed. Before it is used, it must agree with the method on an image of
noise; otherwise the method itself predicts.
"""

import copy
import math
from itertools import chain

import torch
from torch import Tensor

from histolumen.encoders import winograd
from histolumen.encoders.folding import fold, has_batchnorm
from histolumen.methods.base import Method
from histolumen.methods.view import Output

TOLERANCE = 1e-4
"""Largest difference of a probability or of the soft mask that folding may make; rounding makes a hundredth of it."""
_PROBE = 64  # smallest side of the probe image


class FastCopy:
    """The copy of a method for prediction, made when it is first needed."""

    def __init__(self) -> None:
        self._state: tuple[object, ...] | None = None
        self._copy: Method | None = None

    def of(self, method: Method) -> Method:
        """The copy that fits the method's current weights."""
        state = _state_of(method)
        if self._copy is None or state != self._state:
            self._copy, self._state = for_prediction(method), state
        return self._copy


@torch.inference_mode(mode=False)
def for_prediction(method: Method) -> Method:
    """A copy of `method` that predicts the same faster, or `method` itself where there is none."""
    if not has_batchnorm(method) or method.training:
        return method
    tensors = chain(method.parameters(), method.buffers())
    side = math.lcm(method.backbone.size_multiple, method.backbone.stride)
    side *= math.ceil(_PROBE / side)
    probe = torch.rand(1, 3, side, side + side, generator=torch.Generator().manual_seed(0))
    probe = probe.to(method.backbone.mean)
    try:
        fast = copy.deepcopy(method, {id(tensor): tensor for tensor in tensors})  # which are shared, not copied
        fold(fast, lambda: fast(probe))
        with winograd.at_any_size():  # which the probe is too small for
            agrees = _agree(_predict(method, probe), _predict(fast, probe))
    except Exception:  # noqa: BLE001 - a network that uses its layers in unusual ways; the method itself can predict
        return method
    return fast if agrees else method


@torch.inference_mode()
def _predict(method: Method, images: Tensor) -> Output:
    return method(images)


def _agree(one: Output, other: Output) -> bool:
    pairs = ((one.probs, other.probs), (one.soft_mask, other.soft_mask))
    return all(torch.allclose(a, b, rtol=0, atol=TOLERANCE) for a, b in pairs)


def _state_of(method: Method) -> tuple[object, ...]:
    """Changes whenever a tensor is replaced, moved or written to."""
    tensors = chain(method.parameters(), method.buffers())
    return (
        id(method),
        method.training,
        *((id(t), t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors),
    )
