"""Threads of the network: how they wait and how many there are, decided before torch is imported."""

import os
import subprocess
import sys

import pytest

from histolumen import threads

OURS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT", "KMP_LIBRARY")


def run(code: str, **environment: str) -> list[str]:
    """Output lines of a fresh Python in which nobody has chosen anything."""
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=clean | environment
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_importing_the_package_sets_the_policy_before_torch():
    code = "import histolumen, os, sys; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    assert run(code) == ["PASSIVE False"]


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "1000"}])
def test_what_the_user_has_set_stays(chosen):
    code = f"import histolumen, os; print({{name: os.environ.get(name) for name in {OURS[1:]!r}}})"
    assert run(code, **chosen) == [str({name: chosen.get(name) for name in OURS[1:]})]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_the_affinity_limits_the_threads_unless_the_user_says_otherwise():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "import histolumen; print(os.environ.get('OMP_NUM_THREADS'))"
    assert run(code) == ["1" if (os.cpu_count() or 1) > 1 else "None"]
    assert run(code, OMP_NUM_THREADS="3") == ["3"]


def test_the_option_overrides_every_limit_before_torch_is_imported():
    code = (
        "import sys; sys.argv = ['histolumen', '--threads', '1', 'recipes', 'list']\n"
        "from histolumen.cli import main\n"
        "try:\n main()\nexcept SystemExit:\n pass\n"
        "import torch; print('threads', torch.get_num_threads())"
    )
    assert run(code, OMP_NUM_THREADS="2")[-1] == "threads 1"


def test_processes_share_the_cores_unless_the_user_has_chosen(monkeypatch):
    monkeypatch.setattr(threads, "read_cores", lambda: threads_of(8))
    monkeypatch.setattr(threads, "_chosen", False)
    assert [threads.share_among(count) for count in (1, 3, 16)] == [8, 2, 1]
    monkeypatch.setattr(threads, "_chosen", True)
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert threads.share_among(4) == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert threads.share_among(4) == 2


def threads_of(count):
    from histolumen.cores import Cores

    return Cores(count, count, count)
