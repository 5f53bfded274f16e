"""Configuration of memory takes effect before torch is imported."""

import os
import platform
import subprocess
import sys

import pytest

from histolumen.engine import memory

PROBE = """
import os, sys
from histolumen.engine.memory import keep_memory_flat
assert "torch" not in sys.modules
keep_memory_flat()
print(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], os.environ["LRU_CACHE_CAPACITY"])
"""


@pytest.mark.parametrize(("chosen", "expected"), [({}, "256 256"), ({"LRU_CACHE_CAPACITY": "9"}, "256 9")])
def test_few_kernels_are_kept_unless_the_user_chose_otherwise(chosen, expected):
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names} | chosen
    found = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected


FRAGMENTS = """
from pathlib import Path
import numpy as np
from histolumen.engine.memory import return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

gaps, between = [], []
for _ in range(2000):
    gaps.append(np.ones(12_000))  # 96 kB, too small for a mapping of its own
    between.append(np.ones(100))
del gaps
before = resident()
print(return_freed_memory(), before - resident() > 100e6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a function of glibc")
def test_gaps_between_live_blocks_are_returned_to_the_system():
    found = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True)
    assert found.stdout == "True True\n"


def test_a_setting_that_glibc_refuses_leaves_the_other_one_alone(monkeypatch):
    """The trim threshold alone would end the adjustment of the other one, and small blocks would be mapped anew."""
    chosen = []

    class OldGlibc:
        @staticmethod
        def mallopt(setting, value):
            chosen.append(setting)
            return int(setting == memory._ARENA_MAX)

    monkeypatch.setattr(memory, "_glibc", OldGlibc)
    for variable in (*memory._VARIABLES.values(), *memory._KERNEL_CACHES):
        monkeypatch.delenv(variable, raising=False)
    memory.keep_memory_flat()
    for name in memory._KERNEL_CACHES:
        monkeypatch.delenv(name)
    assert chosen == [memory._ARENA_MAX, memory._MMAP_THRESHOLD]


def test_memory_is_returned_every_few_predictions(monkeypatch):
    returned = []
    monkeypatch.setattr(memory, "return_freed_memory", lambda: returned.append(True))
    freed = memory.FreedMemory()
    for _ in range(2 * memory._RETURN_EVERY + 1):
        freed.after_prediction()
    assert len(returned) == 2


ARENAS = """
import ctypes, threading
from histolumen.engine.memory import keep_memory_flat
keep_memory_flat()
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
started, heaps = threading.Barrier(8), set()

def allocate():
    started.wait()
    heaps.add(libc.malloc(1000) >> 26)  # arenas of threads lie in blocks of 64 MB

threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(heaps))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a function of glibc")
def test_threads_share_two_arenas_unless_the_user_chose_otherwise():
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    counts = [
        subprocess.run([sys.executable, "-c", ARENAS], env=environment | chosen, capture_output=True, check=True)
        for chosen in ({}, {"MALLOC_ARENA_MAX": "16"})
    ]
    assert int(counts[0].stdout) <= 2
    assert int(counts[1].stdout) > 2


LARGE_BLOCKS = """
import resource
from histolumen.engine.memory import keep_memory_flat
keep_memory_flat()
import numpy as np

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

np.ones(5_000_000)  # 40 MB
before = faults()
for _ in range(5):
    np.ones(5_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a function of glibc")
def test_large_blocks_are_kept_for_the_next_layer_unless_the_user_chose_otherwise():
    variables = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    kept, mapped = (
        subprocess.run([sys.executable, "-c", LARGE_BLOCKS], env=environment | chosen, capture_output=True, check=True)
        for chosen in ({}, {"MALLOC_MMAP_THRESHOLD_": "1000000"})
    )
    assert int(kept.stdout) < int(mapped.stdout) / 10
