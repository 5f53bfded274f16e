"""Validation by masks, for methods with full supervision: the one place where the choice of an epoch reads a mask.

`train.select: pixel_cross_entropy` asks for it; the schema and this module refuse it for every other method.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from lightning_fabric import Fabric
from torch import Tensor

from histolumen.data.batch import Batch
from histolumen.data.dataset import TrainingImages
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import ImageSettings
from histolumen.errors import ConfigError, DataError
from histolumen.methods.base import Method

_BLOCK = 1024  # side of the blocks that larger images are divided into, in pixels: memory stays bounded


class MaskValidation:
    """The loss of a supervised method on whole validation images whose true mask is known."""

    def __init__(self, method: Method, manifest: Manifest, classes: list[str], settings: ImageSettings):
        if not method.reads_masks:
            raise ConfigError("train.select: pixel_cross_entropy reads masks, and this method learns without them")
        valid = manifest.split("valid")
        known = replace(valid, rows=tuple(row for row in valid.rows if valid.knows_mask(row)))
        if valid.rows and not known.rows:
            raise DataError(
                f"{manifest.root}: train.select=pixel_cross_entropy needs masks, and no validation image has one; "
                "add them, or give --set train.select=last"
            )
        self.method = method
        self.images = TrainingImages(
            known,
            classes,
            settings.model_copy(update={"cache_mb": 0}),
            seed=0,
            with_masks=True,
            multiple=method.backbone.size_multiple,
        )

    @torch.inference_mode()
    def pixel_cross_entropy(self, fabric: Fabric) -> float | None:
        """The mean over pixels, then over images, in nats; images are divided among the processes. None: no images."""
        count = len(self.images)
        if not count:
            return None
        self.method.eval()
        total = torch.zeros((), dtype=torch.float64, device=fabric.device)
        for index in range(fabric.global_rank, count, fabric.world_size):
            image, mask = (fabric.to_device(part) for part in self.images.whole_with_mask(index))
            for block in blocks(image, mask):
                terms, _ = self.method.losses(block)
                total += sum(terms.values()) * (block.images.shape[2:].numel() / image.shape[1:].numel())
        return float(torch.as_tensor(fabric.all_reduce(total, reduce_op="sum"))) / count


def blocks(image: Tensor, mask: Tensor, side: int = _BLOCK) -> Iterator[Batch]:
    """An image [3, H, W] and its mask [1, H, W] as batches of one block; their labels are not used."""
    label = torch.zeros(1, dtype=torch.long, device=image.device)
    for top in range(0, image.shape[1], side):
        for left in range(0, image.shape[2], side):
            window = (slice(None), slice(top, top + side), slice(left, left + side))
            yield Batch(image[window][None], label, mask[window][None])
