"""Files made by a process of their own equal those made in this one, and a failing process is noticed."""

import json
import sys

import numpy as np
import pytest
import shapely

from histolumen.export.in_background import BackgroundFiles, HeatFiles

FILES = HeatFiles(scale=4.0, size=(240, 200), mpp=0.5, min_area=3.0, threshold=0.5)


@pytest.fixture
def heat() -> np.ndarray:
    y, x = np.mgrid[:50, :60]
    return (127 + 120 * np.sin(x / 5) * np.cos(y / 4)).astype(np.uint8)


def test_regions_and_pyramid_are_those_of_this_process(heat, tmp_path):
    background = BackgroundFiles(heat, FILES, tmp_path)
    here = FILES.regions(heat)
    FILES.save_pyramid(heat, tmp_path / "here.tif")
    made = background.results()
    assert made is not None
    regions, pyramid = made
    assert len(regions) == len(here) > 3
    assert [region.mean for region in regions] == [region.mean for region in here]
    assert all(shapely.equals_exact(a.outline, b.outline, 0) for a, b in zip(regions, here, strict=True))
    assert pyramid.read_bytes() == (tmp_path / "here.tif").read_bytes()


def test_a_process_that_fails_or_cannot_start_gives_nothing(heat, tmp_path, monkeypatch):
    monkeypatch.setattr(json, "dumps", lambda _: "no plan")
    assert BackgroundFiles(heat, FILES, tmp_path).results() is None
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    assert BackgroundFiles(heat, FILES, tmp_path).results() is None
    assert BackgroundFiles(heat, FILES, tmp_path / "no folder").results() is None


def test_closing_ends_the_process(heat, tmp_path):
    background = BackgroundFiles(heat, FILES, tmp_path)
    background.close()
    assert background._process.poll() is not None
    background.close()  # again: nothing happens
