"""The short form of `make soak-view`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_normal_and_hostile_clients_leave_the_viewer_as_it_was():
    command = [sys.executable, "benchmarks/soak_view.py", "--seconds", "15", "--images", "3", "--side", "128"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "hostile" in result.stdout
