"""What going on with a run depends on: that it is the same run, and the same randomness."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from histolumen.atomic import settle
from histolumen.config import RunConfig, load_config
from histolumen.data.manifest import Manifest, read_manifest
from histolumen.errors import RunError


def check_folder(out: Path, config: RunConfig, manifest: Manifest, *, resume: bool) -> None:
    """Refuse to write over a run, or to go on with one that was started differently."""
    settle(out / "last")
    exists = (out / "last").exists()
    if exists and not resume:
        raise RunError(f"{out}: already holds a run; add --resume to go on with it, or choose another --out")
    if exists:
        before, now = _flat(load_config(str(out / "config.yaml"))), _flat(config)
        free = {"images.mpp"} if config.train.schedule == "cosine" else {"images.mpp", "train.epochs"}
        changed = [key for key in now if now[key] != before.get(key) and key not in free]
        if changed:
            key = changed[0]
            raise RunError(
                f"{out}: was started with {key} = {before.get(key)}, not {now[key]}; "
                "resume it with the same recipe and --set, only train.epochs may change"
                + (", and not with a cosine schedule, which falls over all of them" if key == "train.epochs" else "")
            )
        if read_manifest(out / "manifest.csv").rows != manifest.rows:
            raise RunError(f"{out}: was started with other images or labels; resume it with the same manifest")


def _flat(config: RunConfig) -> dict[str, Any]:
    nested = config.as_dict()
    blocks = {
        f"{name}.{key}": value for name, block in nested.items() if name != "seed" for key, value in block.items()
    }
    return {**blocks, "seed": config.seed}


def random_state() -> Tensor:
    """State of the generators that dropout draws from: the CPU's and, where there is one, the GPU's."""
    parts = [torch.get_rng_state()]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_rng_state())
    return torch.cat(parts)


def set_random_state(state: Tensor) -> None:
    """Go on where `random_state` was taken."""
    cpu = torch.get_rng_state().numel()
    torch.set_rng_state(state[:cpu].clone())
    if torch.cuda.is_available() and state.numel() > cpu:
        torch.cuda.set_rng_state(state[cpu:].clone())
