"""Commands survive kills at random moments and disks that refuse to write; the short form of `make soak-kills`.

The soak runs in an interpreter of its own, which forks for every call: pytest has threads that a fork would lose.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("plan", "seed"),
    [(("train=4",), 11), (("benchmark=1", "predict=3", "slide=1"), 13)],
)
def test_killed_commands_lose_nothing(plan, seed):
    survives(*plan, "--refusals", "0", "--seed", str(seed))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_disks_that_refuse_are_explained_and_nothing_is_lost():
    survives("predict=0", "camelyon16=2", "--refusals", "1", "--seed", "14")


def test_a_real_disk_that_is_full_then_read_only_costs_nothing():
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("needs a mount namespace (unshare -rm)")
    command = ["unshare", "-rm", sys.executable, str(SOAK.with_name("small_disk.py"))]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert "full: exit code 2: histolumen: " in result.stdout
    assert "the disk is full" in result.stdout
    assert "no permission to write there" in result.stdout


def survives(*arguments: str) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SOAK), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    wanted = sum(int(entry.partition("=")[2]) for entry in arguments if "=" in entry)
    assert result.stdout.count(": kill ") == wanted, result.stdout
