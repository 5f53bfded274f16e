"""Curves for TensorBoard: readable by it, also after a resume, and without a thread that a full disk would break."""

import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from histolumen.engine.event_file import EventFile
from histolumen.errors import DiskError


def test_a_resumed_run_replaces_the_epochs_it_repeats(tmp_path):
    first = EventFile(tmp_path, 1)
    for epoch in (1, 2, 3):
        first.write({"loss/total": epoch / 2, "lr": 0.25}, epoch)
    EventFile(tmp_path, 3).write({"loss/total": 9.0, "lr": 0.5}, 3)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss/total")] == [(1, 0.5), (2, 1.0), (3, 9.0)]
    assert events.Tags()["scalars"] == ["loss/total", "lr"]


def test_a_disk_that_refuses_is_an_error_of_this_thread(tmp_path):
    threads = threading.active_count()
    board = EventFile(tmp_path, 1)
    assert threading.active_count() == threads
    board.path.unlink()
    board.path.mkdir()
    with pytest.raises(DiskError):
        board.write({"lr": 0.25}, 1)
