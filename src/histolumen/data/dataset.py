"""Batches for training and single images for validation, the same on one process or many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, Sampler

from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import ImageSettings, to_unit_range, to_working_size, training_transform
from histolumen.vision import tv_tensors


@dataclass(frozen=True)
class Example:
    """One training image [3, H, W] in [0, 1], its class index and, where there are any, its mask (supervised methods)
    and its proposal, [1, H, W] in [0, 1]."""

    image: Tensor
    label: int
    mask: Tensor | None
    proposal: Tensor | None = None


class TrainingImages(Dataset[Example]):
    """Augmented crops. Randomness depends on (seed, epoch, index) alone: not on order, workers or processes."""

    def __init__(
        self,
        manifest: Manifest,
        classes: Sequence[str],
        settings: ImageSettings,
        seed: int,
        *,
        with_masks: bool = False,
    ):
        self.manifest = manifest
        self.settings = settings
        self.seed = seed
        self.with_masks = with_masks
        self.class_index = {name: index for index, name in enumerate(classes)}
        self.transform = training_transform(settings)
        self.proposals: Sequence[Tensor] | None = None
        """One uint8 map [h, w] per image, which then moves with it; set before the images are asked for."""
        self._cache: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._room = settings.cache_mb * 1_000_000

    def __len__(self) -> int:
        return len(self.manifest.rows)

    def __getitem__(self, key: tuple[int, int]) -> Example:
        epoch, index = key
        image, mask = self._decoded(index)
        proposal = None if self.proposals is None else _enlarged(self.proposals[index], image)
        seeds = np.random.SeedSequence((self.seed, epoch, index))
        with torch.random.fork_rng(devices=[]):
            # the CPU's generator alone: torch.manual_seed would reseed a GPU's dropout as well
            torch.default_generator.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
            image, mask, proposal = self.transform(tv_tensors.Image(image), _moving(mask), _moving(proposal))
        label = self.class_index[self.manifest.rows[index].label]
        mask = None if mask is None else mask.as_subclass(Tensor).float()
        proposal = None if proposal is None else to_unit_range(proposal.as_subclass(Tensor))
        return Example(to_unit_range(image.as_subclass(Tensor)), label, mask, proposal)

    def whole(self, index: int) -> Tensor:
        """Image `index` [3, H, W] in [0, 1] at its working size, whole and unaltered."""
        return to_unit_range(self._decoded(index)[0])

    def _decoded(self, index: int) -> tuple[Tensor, Tensor | None]:
        if index in self._cache:
            return self._cache[index]
        row = self.manifest.rows[index]
        path = self.manifest.image_path(row)
        array = read_image(path)
        image = self._at_least_crop(to_working_size(array, self.settings, path))
        mask = self._mask(index, array, image) if self.with_masks else None
        size = image.numel() + (0 if mask is None else mask.numel())
        if size <= self._room:
            self._room -= size
            self._cache[index] = image, mask
        return image, mask

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


def _moving(mask: Tensor | None) -> tv_tensors.Mask | None:
    return None if mask is None else tv_tensors.Mask(mask)


def _enlarged(proposal: Tensor, image: Tensor) -> Tensor:
    """A uint8 map [h, w] at the size of the image, [1, H, W]."""
    smooth = F.interpolate(proposal[None, None].float(), size=image.shape[1:], mode="bilinear", align_corners=False)
    return smooth[0].round().to(torch.uint8)


class EpochSampler(Sampler[tuple[int, int]]):
    """(epoch, index) pairs of one process; all processes together walk through one shuffled epoch.

    The last batch is filled up from the epoch's beginning, so that batches do not depend on the number of processes.
    """

    def __init__(self, length: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1):
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.processes = rank, processes
        self.epoch = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length)
        padded = np.resize(order, len(self) * self.processes)
        return iter([(self.epoch, int(index)) for index in padded[self.rank :: self.processes]])

    def __len__(self) -> int:
        whole = self.batch_size * self.processes
        return -(-self.length // whole) * self.batch_size


def collate(examples: list[Example]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Stack examples into images, labels, masks and proposals."""
    return (
        torch.stack([example.image for example in examples]),
        torch.tensor([example.label for example in examples]),
        _stacked([example.mask for example in examples]),
        _stacked([example.proposal for example in examples]),
    )


def _stacked(maps: list[Tensor | None]) -> Tensor | None:
    known = [each for each in maps if each is not None]
    return torch.stack(known) if len(known) == len(maps) else None
