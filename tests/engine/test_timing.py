"""Where the time goes: seconds by phase, and their table."""

import time

import pytest

from histolumen.engine.timing import Stopwatch


def test_waiting_for_data_and_phases_are_counted_apart():
    def slow():
        for number in range(3):
            time.sleep(0.02)
            yield number

    watch = Stopwatch()
    for _ in watch.waiting(slow()):
        with watch.phase("forward"):
            time.sleep(0.01)
    assert watch.steps == 3
    assert watch.seconds["waiting for data"] >= 0.06
    assert watch.seconds["forward"] >= 0.03
    assert watch.seconds["backward"] == 0


def test_a_phase_that_fails_is_counted_and_the_error_kept():
    watch = Stopwatch()
    with pytest.raises(RuntimeError, match="no memory"), watch.phase("backward"):
        raise RuntimeError("no memory")
    assert watch.seconds["backward"] > 0


def test_the_table_adds_up():
    watch = Stopwatch()
    for _ in watch.waiting([1, 2]):
        with watch.phase("forward"):
            time.sleep(0.01)
    lines = watch.table().splitlines()
    shares = {line[:18].strip(): float(line.split("%")[0].split()[-1]) for line in lines[2:]}
    assert shares.pop("total") == 100
    assert sum(shares.values()) == pytest.approx(100, abs=0.3)
    assert "backward" not in shares  # did not happen


def test_a_gpu_is_waited_for_within_its_phase():
    waits = []
    watch = Stopwatch(lambda: waits.append(1))
    with watch.phase("forward"):
        assert not waits
    assert waits
