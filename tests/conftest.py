"""Shared fixtures: one torch thread per test process, a tiny data set, a tiny trained run."""

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch

from histolumen.config import RunConfig, load_config
from histolumen.data.manifest import Manifest
from histolumen.data.synthetic_set import write_synthetic_set
from histolumen.engine.train import train
from tiny import TINY

torch.set_num_threads(1)
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def tiny_manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Twelve 64-pixel synthetic images with masks, on disk."""
    folder = tmp_path_factory.mktemp("tiny")
    manifest = write_synthetic_set(folder, images=12, size=64, seed=3)
    manifest.write(folder / "manifest.csv")
    return manifest


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., RunConfig]:
    """A recipe, made tiny, with further overrides."""

    def make(*overrides: str, recipe: str = "glas-sem") -> RunConfig:
        return load_config(recipe, [*TINY, *overrides])

    return make


@pytest.fixture(scope="session")
def tiny_run(
    tiny_manifest: Manifest, tiny_config: Callable[..., RunConfig], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A finished run of two epochs."""
    out = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny_config(), tiny_manifest, out)
    return out
