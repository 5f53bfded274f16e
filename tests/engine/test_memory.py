"""Configuration of memory takes effect before torch is imported."""

import os
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
