"""Proposed masks of the training images: requested from the method, stored in the run folder, reloaded on resume."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from histolumen.atomic import new_file
from histolumen.data.dataset import TrainingImages
from histolumen.errors import RunError
from histolumen.methods.base import Method
from histolumen.progress import Progress

T = TypeVar("T")
FILE = "proposals.safetensors"


class WholeTrainingImages:
    """The training images as `WholeImages`, with a progress report."""

    def __init__(self, images: TrainingImages, device: torch.device, seed: int, progress: Progress):
        self.images, self.device, self.seed, self.progress = images, device, seed, progress
        self.labels = torch.tensor([images.class_index[row.label] for row in images.manifest.rows])
        self.classes = sorted(images.class_index, key=images.class_index.__getitem__)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.images.whole(index)[None].to(self.device)

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:
        return self.progress.track(items, description)

    def say(self, line: str) -> None:
        self.progress.message(line)


def make_proposals(method: Method, examples: WholeTrainingImages, out: Path, *, again: bool) -> None:
    """Let the method propose masks and store them together with the first proposals of the run.

    Args:
        method: the method.
        examples: the training images.
        out: run folder.
        again: whether the run already has proposals.
    """
    first = _read(out / FILE, "first") if again else None
    now = [_to_uint8(each) for each in method.propose(examples, None if first is None else [x / 255 for x in first])]
    tensors = {f"first.{k}": each for k, each in enumerate(first or now)}
    tensors |= {f"now.{k}": each.clone() for k, each in enumerate(now)}
    with new_file(out / FILE) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors))


def read_proposals(out: Path) -> list[Tensor]:
    """Load the current proposals: one uint8 map per training image."""
    return _read(out / FILE, "now")


def _to_uint8(proposal: Tensor) -> Tensor:
    return (255 * proposal.float().clamp(0, 1)).round().to(torch.uint8).cpu().contiguous()


def _read(path: Path, kind: str) -> list[Tensor]:
    try:
        tensors = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: cannot be read ({error}); train again in another folder") from error
    names = [f"{kind}.{k}" for k in range(len(tensors) // 2)]
    if not names or any(name not in tensors for name in names):
        raise RunError(f"{path}: contains no proposals; train again in another folder")
    return [tensors[name] for name in names]
