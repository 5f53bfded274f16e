"""Configuration of memory takes effect before torch is imported."""

import os
import platform
import subprocess
import sys

import pytest

PROBE = """
import os, sys
from histolumen.engine.memory import keep_few_kernels
assert "torch" not in sys.modules
keep_few_kernels()
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
