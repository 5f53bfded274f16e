"""Two real dask workers, one of which is killed while it predicts a slide."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed import Client

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s"}


def start(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """Address of a scheduler, and its two worker processes."""
    contact = tmp_path / "scheduler.json"
    common = "--scheduler-file", contact
    processes = [start("distributed.cli.dask_scheduler", *common, "--port", 0, "--no-dashboard", "--host", "127.0.0.1")]
    processes += [
        start("distributed.cli.dask_worker", *common, "--nthreads", 1, "--nworkers", 1, "--no-nanny", "--no-dashboard",
              "--local-directory", tmp_path / f"worker{k}", "--name", f"worker{k}", "--death-timeout", 60)
        for k in range(2)
    ]  # fmt: skip
    deadline = time.monotonic() + 60
    while not contact.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    yield json.loads(contact.read_text())["address"], processes[1:]
    for process in processes:
        process.kill()
        process.wait()


def test_the_slide_of_a_lost_worker_is_predicted_by_another(tmp_path, gland_slide, tiny_run, cluster):
    address, workers = cluster
    slides = tmp_path / "slides"
    slides.mkdir()
    for k in range(6):
        shutil.copy(gland_slide, slides / f"slide{k}.tif")
    out = tmp_path / "out"
    options = ["--out", out, "--model-mpp", 0.5, "--tile", 256, "--overlap", 64, "--cluster", address]
    command = [sys.executable, "-m", "histolumen", "slide", tiny_run, slides, *options]
    running = subprocess.Popen(list(map(str, command)), env=ONE_THREAD, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (
        not list(out.glob("*/unfinished/pass-1.*.done")) and time.monotonic() < deadline
    ):  # until a slide is in progress
        time.sleep(0.02)
    lost = _worker_with_a_slide(address)
    os.kill(workers[lost].pid, signal.SIGKILL)
    output, _ = running.communicate(timeout=240)
    assert running.returncode == 0, output
    assert "6 of 6 slides done" in output
    with (out / "slides.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(Path(row["slide"]).stem for row in rows) == [f"slide{k}" for k in range(6)]
    assert {row["state"] for row in rows} == {"done"}
    assert len({row["p_benign"] for row in rows}) == 1  # equal slides have equal results on every worker


def _worker_with_a_slide(address: str) -> int:
    """Number of a worker that is predicting a slide."""
    with Client(address, set_as_default=False) as client:
        names = {place: worker["name"] for place, worker in client.scheduler_info()["workers"].items()}
        busy = [names[place] for place, keys in client.processing().items() if keys]
    return int(busy[0].removeprefix("worker"))
