"""Training images as augmented crops, and a sampler; neither depends on the number of processes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, Sampler

from histolumen.data.batch import TrainingCrop
from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import (
    SIZE_MULTIPLE,
    ImageSettings,
    fitting_crop,
    to_unit_range,
    to_working_size,
    training_transform,
)
from histolumen.progress import Progress
from histolumen.tissue.glass import find_glass
from histolumen.vision import tv_tensors


class TrainingImages(Dataset[TrainingCrop]):
    """Augmented crops. Randomness depends only on (seed, epoch, index), not on order, workers or processes."""

    def __init__(
        self,
        manifest: Manifest,
        classes: Sequence[str],
        settings: ImageSettings,
        seed: int,
        *,
        with_masks: bool = False,
        multiple: int = SIZE_MULTIPLE,
    ):
        self.manifest = manifest
        self.multiple = multiple
        self.settings = settings = settings.model_copy(update={"crop": fitting_crop(settings, multiple)})
        self.seed = seed
        self.with_masks = with_masks
        self.class_index = {name: index for index, name in enumerate(classes)}
        self.transform = training_transform(settings)
        self.proposals: Sequence[Tensor] | None = None
        """One uint8 map [h, w] per image, transformed together with it; set before images are loaded."""
        self._cache: dict[int, tuple[Tensor, Tensor | None, Tensor | None]] = {}
        self.cached_bytes = 0
        """Memory that decoded images take; at most `images.cache_mb`."""

    def __len__(self) -> int:
        return len(self.manifest.rows)

    def __getitem__(self, key: tuple[int, int]) -> TrainingCrop:
        epoch, index = key
        image, mask, glass = self._load(index)
        proposal = None if self.proposals is None else _resize_proposal(self.proposals[index], image)
        seeds = np.random.SeedSequence((self.seed, epoch, index))
        with torch.random.fork_rng(devices=[]):
            # only the CPU generator: torch.manual_seed would also reseed dropout on the GPU
            torch.default_generator.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
            image, mask, proposal, glass = self.transform(
                tv_tensors.Image(image), _as_mask(mask), _as_mask(proposal), _as_mask(glass)
            )
        label = self.class_index[self.manifest.rows[index].label]
        mask, glass = (None if each is None else each.as_subclass(Tensor).float() for each in (mask, glass))
        proposal = None if proposal is None else to_unit_range(proposal.as_subclass(Tensor))
        return TrainingCrop(to_unit_range(image.as_subclass(Tensor)), label, mask, proposal, glass)

    def whole(self, index: int) -> Tensor:
        """Image `index` [3, H, W] in [0, 1] at its working size, without crop or augmentation."""
        return to_unit_range(self._load(index)[0])

    def whole_with_mask(self, index: int) -> tuple[Tensor, Tensor]:
        """The same, and its mask [1, H, W] of 0 and 1; for methods that read masks."""
        image, mask, _ = self._load(index)
        if mask is None:
            raise ValueError("these images were made without masks")
        return to_unit_range(image), mask.float()

    def _load(self, index: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Image, mask and glass at working size, [3 or 1, H, W] uint8."""
        if index in self._cache:
            return self._cache[index]
        row = self.manifest.rows[index]
        path = self.manifest.image_path(row)
        array = read_image(path)
        image = self._at_least_crop(to_working_size(array, self.settings, path, self.multiple))
        mask = self._mask(index, array, image) if self.with_masks else None
        glass = _glass(image) if self.settings.glass == "remove" else None
        size = sum(each.numel() for each in (image, mask, glass) if each is not None)
        if self.cached_bytes + size <= self.settings.cache_mb * 1_000_000:
            self.cached_bytes += size
            self._cache[index] = image, mask, glass
        return image, mask, glass

    def decode_ahead(self, progress: Progress) -> int:
        """Decode images into the cache until it is full; return their number. Loader processes that are forked later
        share them instead of decoding and storing each image once per process."""
        for index in progress.track(range(len(self)), "decoding training images"):
            self._load(index)
            if index not in self._cache:
                break
        return len(self._cache)

    def _at_least_crop(self, image: Tensor) -> Tensor:
        """Enlarge images (at original resolution) that are smaller than the crop."""
        short = min(image.shape[1:])
        if short >= self.settings.crop:
            return image
        size = [round(side * self.settings.crop / short) for side in image.shape[1:]]
        return F.interpolate(image[None].float(), size=size, mode="bilinear")[0].round().to(torch.uint8)

    def _mask(self, index: int, array: np.ndarray, image: Tensor) -> Tensor:
        path: Path | None = self.manifest.mask_path(self.manifest.rows[index])
        mask = np.zeros(array.shape[:2], bool) if path is None else read_mask(path, array.shape[:2])
        tensor = torch.from_numpy(mask)[None, None].float()
        return F.interpolate(tensor, size=image.shape[1:], mode="nearest-exact")[0].to(torch.uint8)


def _glass(image: Tensor) -> Tensor:
    return torch.from_numpy(find_glass(image.permute(1, 2, 0).numpy()))[None].to(torch.uint8)


def _as_mask(mask: Tensor | None) -> tv_tensors.Mask | None:
    return None if mask is None else tv_tensors.Mask(mask)


def _resize_proposal(proposal: Tensor, image: Tensor) -> Tensor:
    """A uint8 map [h, w] resized to the image, [1, H, W]."""
    smooth = F.interpolate(proposal[None, None].float(), size=image.shape[1:], mode="bilinear", align_corners=False)
    return smooth[0].round().to(torch.uint8)


class EpochSampler(Sampler[tuple[int, int]]):
    """(epoch, index) pairs of one process; all processes together cover one shuffled epoch.

    The last batch is filled with the first images of the epoch: batches do not depend on the number of processes.
    With `fill=False`, or if one batch could hold all images, it is short instead, filled only as far as every process
    needs an image.
    """

    def __init__(
        self, length: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1, *, fill: bool = True
    ):
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.processes, self.fill = rank, processes, fill
        self.epoch = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length)
        padded = np.resize(order, len(self) * self.processes)
        return iter([(self.epoch, int(index)) for index in padded[self.rank :: self.processes]])

    def __len__(self) -> int:
        fill = self.fill and self.batch_size * self.processes <= self.length
        own = self.batch_size if fill else 1
        return -(-self.length // (own * self.processes)) * own
