"""Loading of training images: in the training process, or in loader processes that share the decoded images."""

import multiprocessing
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from histolumen.data.batch import Batch
from histolumen.data.dataset import EpochSampler, TrainingImages
from histolumen.errors import ImageError
from histolumen.progress import Progress

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps the batches that loader processes hand over
_BATCHES_IN_FLIGHT = 4  # per loader process: two prefetched, one in work, one in use
_THREADS_PER_LOADER = 8  # computing threads that one loader process keeps busy
_MOST = 8


def loader_processes(workers: int | None, device: torch.device, batch_bytes: int) -> int:
    """Number of loader processes: as set, or one that fits the cores, the device and the shared memory.

    Args:
        workers: `train.workers`; None: automatic.
        device: that trains.
        batch_bytes: size of a batch of images, which processes hand over in shared memory (64 MB in a plain container).
    """
    if workers is not None:
        return workers
    threads = torch.get_num_threads()
    if threads < 2 or multiprocessing.current_process().daemon:  # a daemon, as in dask, may not start processes
        return 0
    wanted = threads - 1 if device.type == "cuda" else max(1, threads // _THREADS_PER_LOADER)
    if _SHARED_MEMORY.is_dir():
        wanted = min(wanted, shutil.disk_usage(_SHARED_MEMORY).free // (_BATCHES_IN_FLIGHT * batch_bytes))
    return min(wanted, _MOST)


def make_loader(images: TrainingImages, batch_size: int, sampler: EpochSampler, workers: int) -> DataLoader[Any]:
    """Batches of augmented crops. Loader processes are forked where possible: they share the decoded images."""
    return DataLoader(
        images,
        batch_size,
        sampler=sampler,
        num_workers=workers,
        collate_fn=Batch.of,
        persistent_workers=workers > 0,
        multiprocessing_context="fork" if workers and sys.platform.startswith("linux") else None,
        generator=torch.Generator(),  # else `workers` would change the generator that dropout uses
    )


def decode_once(images: TrainingImages, workers: int, progress: Progress) -> None:
    """Decode the training images into memory, as many as `images.cache_mb` allows, before loader processes start."""
    kept = images.decode_ahead(progress)
    megabytes, budget = images.cached_bytes / 1e6, images.settings.cache_mb
    shared = f", shared by {workers} loader process{'es' if workers > 1 else ''}" if workers else ""
    line = f"{kept} of {len(images)} training images are kept decoded in {megabytes:,.0f} of {budget:,} MB{shared}"
    if kept < len(images):
        progress.message(f"{line}; the others are decoded again each epoch (images.cache_mb)")
    elif workers:
        progress.message(line)


def with_short_errors(loader: DataLoader[Batch]) -> Iterator[Batch]:
    """Yield batches; an image error of a loader process is reduced to its message, without the traceback."""
    try:
        yield from loader
    except ImageError as error:
        raise ImageError(str(error).strip().splitlines()[-1].removeprefix("histolumen.errors.ImageError: ")) from error
