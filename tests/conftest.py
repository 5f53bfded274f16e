"""Shared fixtures: one torch thread per test process, a tiny data set, a tiny trained run."""

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch
from gland_slides import tissue_picture
from slide_files import write_slide

from histolumen.config import RunConfig, load_config
from histolumen.data.manifest import Manifest
from histolumen.data.sources.synthetic import write_synthetic_set
from histolumen.engine.train import train
from tiny import TINY

torch.set_num_threads(1)
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


SLOW = {  # files whose tests start processes or train many networks; `make test-quick` leaves them out
    "test_benchmark.py",
    "test_browser.py",
    "test_catalogue.py",
    "test_cluster.py",
    "test_complexity.py",
    "test_contract.py",
    "test_docs.py",
    "test_end_to_end.py",
    "test_export.py",
    "test_families.py",
    "test_figures.py",
    "test_parity.py",
    "test_propose.py",
    "test_published.py",
    "test_report_browser.py",
    "test_rivals.py",
    "test_runner.py",
    "test_sample.py",
    "test_openapi.py",
    "test_serve.py",
    "test_soak.py",
    "test_survival.py",
    "test_train.py",
    "test_vision.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and start them first: the quick ones fill the gaps at the end."""
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.name not in SLOW)


@pytest.fixture(scope="session")
def tiny_manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Twelve 64-pixel synthetic images with masks, on disk."""
    folder = tmp_path_factory.mktemp("tiny")
    manifest = write_synthetic_set(folder, images=12, size=64, seed=3)
    manifest.write(folder / "manifest.csv")
    return manifest


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., RunConfig]:
    """A recipe with overrides that make it tiny, plus those given."""

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


@pytest.fixture(scope="session")
def gland_slide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slide of 640 x 512 pixels at 0.5 microns per pixel."""
    return write_slide(tmp_path_factory.mktemp("slides") / "glands.tif", tissue_picture(), mpp=0.5)
