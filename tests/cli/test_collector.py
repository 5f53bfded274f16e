"""The search for reference cycles: not during a start, not at the exit, but in between."""

import gc
import subprocess
import sys

import pytest

from histolumen.cli.collector import paused_collector


@pytest.fixture(autouse=True)
def _nothing_stays_frozen():
    gc.unfreeze()  # other tests run whole commands
    yield
    gc.unfreeze()


def test_the_search_is_paused_and_goes_on_without_what_was_loaded():
    frozen = gc.get_freeze_count()
    with paused_collector():
        assert not gc.isenabled()
        loaded = [[] for _ in range(1000)]  # unlike empty dictionaries, lists may be part of a cycle
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(loaded)


def test_the_search_goes_on_after_an_error():
    with pytest.raises(RuntimeError), paused_collector():
        raise RuntimeError
    assert gc.isenabled()


def test_a_search_that_was_switched_off_stays_off():
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_searched_when_a_command_exits():
    code = (
        "import atexit, gc, sys; from histolumen.cli import main; sys.argv = ['histolumen', '--version']\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 10_000))\n"
        "main()"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("True\n")
