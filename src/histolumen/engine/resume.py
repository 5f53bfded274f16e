"""Resuming a run: checks that it is the same run, and restores the random state."""

from pathlib import Path

import torch
from torch import Tensor

from histolumen.atomic import finish_swap
from histolumen.config import RunConfig, parse_run_config, read_recipe
from histolumen.data.manifest import Manifest, read_manifest
from histolumen.errors import RunError

_WITHOUT_EFFECT = {"images.mpp", "images.cache_mb", "train.workers"}
"""Settings that do not change the weights."""


def check_folder(out: Path, config: RunConfig, manifest: Manifest, *, resume: bool) -> None:
    """Refuse to overwrite a run, or to resume one with other settings, images or labels."""
    finish_swap(out / "last")
    exists = (out / "last").exists()
    if exists and not resume:
        raise RunError(f"{out}: already holds a run; add --resume to continue it, or choose another --out")
    if exists:
        before, now = parse_run_config(read_recipe(str(out / "config.yaml"))).flat(), config.flat()
        changeable = _WITHOUT_EFFECT if config.train.schedule == "cosine" else {*_WITHOUT_EFFECT, "train.epochs"}
        changed = [key for key in now if now[key] != before.get(key) and key not in changeable]
        if changed:
            key = changed[0]
            raise RunError(
                f"{out}: was started with {key} = {before.get(key)}, not {now[key]}; "
                "resume with the same recipe and --set; only train.epochs may change"
                + (", and not with a cosine schedule, which depends on it" if key == "train.epochs" else "")
            )
        if read_manifest(out / "manifest.csv").rows != manifest.rows:
            raise RunError(f"{out}: was started with other images or labels; resume with the same manifest")


def random_state() -> Tensor:
    """State of the CPU generator and, if there is a GPU, of its generator."""
    parts = [torch.get_rng_state()]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_rng_state())
    return torch.cat(parts)


def set_random_state(state: Tensor) -> None:
    """Restore a state returned by `random_state`."""
    cpu = torch.get_rng_state().numel()
    torch.set_rng_state(state[:cpu].clone())
    if torch.cuda.is_available() and state.numel() > cpu:
        torch.cuda.set_rng_state(state[cpu:].clone())
