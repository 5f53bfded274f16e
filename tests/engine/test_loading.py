"""Loader processes: how many, and that all of them share one copy of the decoded images."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from histolumen.data import dataset
from histolumen.engine import loading
from histolumen.engine.loading import loader_processes
from histolumen.engine.train import train
from tiny import Recorder

CPU, GPU = torch.device("cpu"), torch.device("cuda")
Space = namedtuple("Space", "total used free")


@pytest.mark.parametrize(
    ("threads", "device", "expected"), [(1, CPU, 0), (2, CPU, 1), (16, CPU, 2), (1, GPU, 0), (4, GPU, 3), (64, GPU, 8)]
)
def test_the_number_of_processes_follows_the_threads(monkeypatch, threads, device, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Space(0, 0, 10**12))
    assert loader_processes(None, device, 10**6) == expected
    assert loader_processes(5, device, 10**6) == 5  # as set


def test_batches_that_do_not_fit_into_shared_memory_are_loaded_without_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(loading, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Space(64 * 2**20, 0, 64 * 2**20))  # a plain container
    assert loader_processes(None, CPU, 8 * 2**20) == 1
    assert loader_processes(None, CPU, 66 * 2**20) == 0


def count_reads(monkeypatch, log: Path) -> None:
    """Append a letter to `log` for each decoded image, in any process."""
    real = dataset.read_image

    def counting(path):
        with log.open("a") as handle:
            handle.write(".")
        return real(path)

    monkeypatch.setattr(dataset, "read_image", counting)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_image_is_decoded_once_in_all_processes_together(
    tiny_manifest, tiny_config, tmp_path, monkeypatch, workers
):
    count_reads(monkeypatch, tmp_path / "reads")
    said = Recorder()
    train(tiny_config(f"train.workers={workers}"), tiny_manifest, tmp_path / "run", progress=said)
    count = len(tiny_manifest.split("train").rows)
    assert len((tmp_path / "reads").read_text()) == count
    shared = [line for line in said.messages if "shared by 2 loader processes" in line]
    assert len(shared) == (1 if workers else 0)


def test_images_beyond_the_budget_are_decoded_again_and_it_is_said(tiny_manifest, tiny_config, tmp_path, monkeypatch):
    count_reads(monkeypatch, tmp_path / "reads")
    said = Recorder()
    train(tiny_config("images.cache_mb=0"), tiny_manifest, tmp_path / "run", progress=said)
    assert len((tmp_path / "reads").read_text()) > 2 * len(tiny_manifest.split("train").rows)  # two epochs
    assert any("0 of" in line and "decoded again each epoch (images.cache_mb)" in line for line in said.messages)
