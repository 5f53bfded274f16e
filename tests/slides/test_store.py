import os

import numpy as np

from histolumen.slides import store
from histolumen.slides.store import KeptPixels


def tile(value: int) -> np.ndarray:
    return np.full((8, 8, 3), value, np.uint8)


def test_pixels_are_kept_up_to_a_limit(tmp_path):
    kept = KeptPixels(tmp_path / "work", 2 * tile(0).nbytes)
    for index in (5, 5, 3, 9):
        kept.keep(index, tile(index))
    assert np.array_equal(kept.get(5, 8), tile(5))
    assert np.array_equal(kept.get(3, 8), tile(3))
    assert kept.get(9, 8) is None
    assert not list((tmp_path / "work").iterdir())  # nothing would remain of a killed process
    kept.close()


def test_a_full_disk_only_ends_the_keeping(tmp_path, monkeypatch):
    kept = KeptPixels(tmp_path, 2**20)
    kept.keep(0, tile(7))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "pwrite", full)
    kept.keep(1, tile(8))
    monkeypatch.undo()
    kept.keep(2, tile(9))
    assert np.array_equal(kept.get(0, 8), tile(7))
    assert kept.get(1, 8) is None
    assert kept.get(2, 8) is None
    assert os.fstat(kept._file.fileno()).st_size == tile(0).nbytes
    kept.close()
