"""The masks a method proposes for its own training images: asked for, kept in the run folder, found again on resume."""

from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from histolumen.atomic import new_file
from histolumen.data.dataset import TrainingImages
from histolumen.engine.progress import TrainingReporter
from histolumen.errors import RunError
from histolumen.methods.base import Method

FILE = "proposals.safetensors"


class WholeImages:
    """`Examples` for a method; says how far it is."""

    def __init__(self, images: TrainingImages, device: torch.device, seed: int, reporter: TrainingReporter):
        self.images, self.device, self.seed, self.reporter = images, device, seed, reporter
        self._looked = 0
        labels = [images.class_index[row.label] for row in images.manifest.rows]
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        self._looked += 1
        self.reporter.note(f"proposing masks: image {min(self._looked, len(self))} of {len(self)}")
        return self.images.whole(index)[None].to(self.device)

    def say(self, line: str) -> None:
        self.reporter.epoch(line)


def make_proposals(method: Method, examples: WholeImages, out: Path, *, again: bool) -> None:
    """Ask the method, for the first time in a run or again, and write what it says beside what it said first."""
    first = _read(out / FILE, "first") if again else None
    now = [_byte(each) for each in method.propose(examples, None if first is None else [x / 255 for x in first])]
    tensors = {f"first.{k}": each for k, each in enumerate(first or now)}
    tensors |= {f"now.{k}": each.clone() for k, each in enumerate(now)}
    with new_file(out / FILE) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors))


def read_proposals(out: Path) -> list[Tensor]:
    """Those that training follows at present: one uint8 map per training image."""
    return _read(out / FILE, "now")


def _byte(proposal: Tensor) -> Tensor:
    return (255 * proposal.float().clamp(0, 1)).round().to(torch.uint8).cpu().contiguous()


def _read(path: Path, kind: str) -> list[Tensor]:
    try:
        tensors = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: cannot be read ({error}); train again in another folder") from error
    names = [f"{kind}.{k}" for k in range(len(tensors) // 2)]
    if not names or any(name not in tensors for name in names):
        raise RunError(f"{path}: does not hold the proposals of a run; train again in another folder")
    return [tensors[name] for name in names]
