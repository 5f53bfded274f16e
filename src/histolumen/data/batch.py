"""Training crops and batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class TrainingCrop:
    """One augmented training image [3, H, W] in [0, 1] and its class index.

    `mask` is set only for supervised methods, `proposal` only for methods with mask proposals, `glass` only with
    `images.glass: remove`; all are [1, H, W] in [0, 1].
    """

    image: Tensor
    label: int
    mask: Tensor | None = None
    proposal: Tensor | None = None
    glass: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """Images in [0, 1] [B, 3, H, W] and class indices [B].

    Masks [B, 1, H, W] are set only for methods that declare `reads_masks`. Proposals [B, 1, H, W] in [0, 1] are the
    method's own mask proposals, transformed together with the images. Glass [B, 1, H, W] is 1 on bare glass that is
    still to be removed.
    """

    images: Tensor
    labels: Tensor
    masks: Tensor | None = None
    proposals: Tensor | None = None
    glass: Tensor | None = None

    @classmethod
    def of(cls, crops: Sequence[TrainingCrop]) -> "Batch":
        """Stack crops of one size."""
        return cls(
            images=torch.stack([crop.image for crop in crops]),
            labels=torch.tensor([crop.label for crop in crops]),
            masks=_stack([crop.mask for crop in crops]),
            proposals=_stack([crop.proposal for crop in crops]),
            glass=_stack([crop.glass for crop in crops]),
        )

    def without_glass(self, colour: Tensor) -> "Batch":
        """The same batch with glass painted in `colour` [1, 3, 1, 1]."""
        if self.glass is None:
            return self
        return replace(self, images=torch.where(self.glass > 0.5, colour, self.images), glass=None)

    def laid_out(self, layout: torch.memory_format) -> "Batch":
        """The same batch with the images in this memory layout, which networks keep for their features."""
        return replace(self, images=self.images.contiguous(memory_format=layout))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with `change` applied to every tensor, for example to move it to a device."""
        changed = {
            field.name: change(value) for field in fields(self) if (value := getattr(self, field.name)) is not None
        }
        return replace(self, **changed)


def _stack(maps: list[Tensor | None]) -> Tensor | None:
    present = [each for each in maps if each is not None]
    return torch.stack(present) if len(present) == len(maps) else None
