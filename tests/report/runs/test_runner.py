"""The runner: resumed, shared among processes, and not stopped by a failed job."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from filelock import FileLock
from PIL import Image

from commands import histolumen
from histolumen.data.manifest import Manifest
from histolumen.engine.runlog import read_metrics
from histolumen.errors import ConfigError, DataError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.runs import runner
from histolumen.report.runs.runner import run_plan
from histolumen.report.runs.table import results_table
from tiny import SMALL, Recorder

SHORT = (*SMALL, "train.epochs=1")


def plan(**changes) -> BenchmarkPlan:
    given = {"target": "", "methods": ("cam-avg",), "seeds": (0,), "recipe": "folder", "backbone": None}
    return BenchmarkPlan(**{**given, "overrides": SHORT, "split": "test", **changes})


def command(manifest: Manifest, out: Path, *options: str, overrides: tuple[str, ...] = SHORT) -> list[str]:
    settings = [part for override in overrides for part in ("--set", override)]
    data = str(manifest.root / "manifest.csv")
    return [sys.executable, "-m", "histolumen", "benchmark", data, "--out", str(out), *settings, *options]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "250"}
    return subprocess.Popen(
        arguments, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def in_this_process(arguments: list[str]) -> str:
    result = histolumen(*arguments[3:])  # without `python -m histolumen`
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def kill_once_trained(process: subprocess.Popen[str], run: Path, epochs: int) -> None:
    """Kill the process and its children when a run has finished `epochs` epochs."""
    wait_until(lambda: len(read_metrics(run)) >= epochs)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def weights_of(out: Path) -> dict[str, tuple[int, bytes]]:
    """Run -> modification time and content of its last weights."""
    files = {path: path / "last" / "model.safetensors" for path in (out / "runs").iterdir()}
    return {path.name: (file.stat().st_mtime_ns, file.read_bytes()) for path, file in files.items() if file.exists()}


def scores_of(out: Path) -> list[dict[str, str]]:
    """The table without its times, which differ from run to run."""
    with (out / "table.csv").open(newline="") as file:
        return [{key: value for key, value in row.items() if key != "min/run"} for row in csv.DictReader(file)]


def test_a_killed_benchmark_is_resumed_with_the_same_table(tiny_manifest, tmp_path):
    options = ("--methods", "cam-avg", "--methods", "sem", "--seeds", "0", "--seeds", "1")
    several = (*SMALL, "train.epochs=3")
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    in_this_process(command(tiny_manifest, unbroken, *options, overrides=several))

    process = start(command(tiny_manifest, broken, *options, overrides=several))
    half_way = broken / "runs" / "cam-avg-seed1"
    kill_once_trained(process, half_way, 1)
    assert len(read_metrics(half_way)) < 3, "it was done before it could be killed"
    before = weights_of(broken)["cam-avg-seed0"]
    output = in_this_process(command(tiny_manifest, broken, *options, overrides=several))
    assert "run 1 of 4, CAM-Avg, seed 0: already done" in output
    assert weights_of(broken)["cam-avg-seed0"] == before
    assert scores_of(broken) == scores_of(unbroken)
    assert {run: bytes_ for run, (_, bytes_) in weights_of(broken).items()} == {
        run: bytes_ for run, (_, bytes_) in weights_of(unbroken).items()
    }


def test_two_calls_share_the_runs_and_take_over_those_of_a_killed_one(tiny_manifest, tmp_path):
    study = [
        sys.executable, "-m", "histolumen", "study", "ablation", "--recipe", "glas-sem", "--kinds", "sem",
        "--data", str(tiny_manifest.root / "manifest.csv"), "--out", str(tmp_path),
        *(part for override in (*SHORT, "method.classifier_scale=1.0") for part in ("--set", override)),
    ]  # fmt: skip
    victim = start(study)
    wait_until((tmp_path / ".locks").exists)
    os.killpg(victim.pid, signal.SIGKILL)  # while it holds the lock of the first run
    victim.communicate()
    assert not (tmp_path / "table.csv").exists(), "it was done before it could be killed"

    both = [start(study), start(study)]
    outputs = [finish(process) for process in both]
    runs = ["WILDCAT", "FG only", "FG + BG (SEM)", "FG + BG (SEM) + ASC"]
    for run in runs:
        assert sum(text.count(f"training {run}, seed 0") for text in outputs) == 1, outputs  # no run is trained twice
        assert all(f"{run}, seed 0: " in text for text in outputs)
    assert outputs[0].split("Study of ablation")[1] == outputs[1].split("Study of ablation")[1]


def test_a_run_held_by_another_process_is_waited_for(tiny_manifest, tmp_path, monkeypatch):
    (tmp_path / ".locks").mkdir()
    lock = FileLock(tmp_path / ".locks" / "cam-avg-seed0.lock")
    lock.acquire()
    monkeypatch.setattr(runner.time, "sleep", lambda _: lock.release())  # releases the lock during the wait
    progress = Recorder()
    results = run_plan(plan(methods=("cam-avg", "all-ones")), tiny_manifest, tmp_path, progress=progress)
    assert [run.job.key for run in results.runs] == ["all-ones-seed0", "cam-avg-seed0"]
    waiting = progress.messages.index("waiting for 1 run(s) held by other processes")
    assert waiting < progress.messages.index("training CAM-Avg, seed 0")


def test_killed_workers_of_a_cluster_are_replaced(tiny_manifest, tmp_path):
    run = tmp_path / "runs" / "cam-avg-seed0"
    several = (*SMALL, "train.epochs=30")
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        with Client(cluster) as client:
            (pid,) = client.run(os.getpid).values()
        options = ("--methods", "cam-avg", "--cluster", cluster.scheduler_address)
        process = start(command(tiny_manifest, tmp_path, *options, overrides=several))
        wait_until(lambda: bool(read_metrics(run)))
        os.kill(pid, signal.SIGKILL)
        assert len(read_metrics(run)) < 30, "it was done before it could be killed"
        output = finish(process)
    assert output.count(": done") == 1
    assert [record["epoch"] for record in read_metrics(run)] == list(range(1, 31))


def test_several_processes_end_with_their_parent_and_give_the_same_runs_as_one(tiny_manifest, tmp_path):
    options = ("--methods", "cam-avg", "--seeds", "0", "--seeds", "1")
    several = (*SMALL, "train.epochs=40")
    two = command(tiny_manifest, tmp_path / "two", *options, "--workers", "2", overrides=several)
    process = start(two)
    runs = [tmp_path / "two" / "runs" / f"cam-avg-seed{seed}" for seed in (0, 1)]
    wait_until(lambda: any(map(read_metrics, runs)))
    os.kill(process.pid, signal.SIGKILL)  # only the parent: its children must detect that
    process.wait()
    for run in runs:
        FileLock(tmp_path / "two" / ".locks" / f"{run.name}.lock").acquire(timeout=20).lock.release()
        assert len(read_metrics(run)) < 40
    output = in_this_process(two)
    assert output.count("seed 0: done") == output.count("seed 1: done") == 1
    assert [len(read_metrics(run)) for run in runs] == [40, 40]
    in_this_process(command(tiny_manifest, tmp_path / "one", *options, overrides=several))
    assert scores_of(tmp_path / "two") == scores_of(tmp_path / "one")
    assert {run: data for run, (_, data) in weights_of(tmp_path / "two").items()} == {
        run: data for run, (_, data) in weights_of(tmp_path / "one").items()
    }


def test_one_failing_run_does_not_stop_the_others(tiny_manifest, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "cam-avg-seed0").write_text("in the way")
    results = run_plan(plan(methods=("layer-cam", "cam-avg")), tiny_manifest, tmp_path)
    assert [run.job.title for run in results.runs] == ["LayerCAM"]
    assert len(results.failures) == 1
    assert results.failures[0].startswith("CAM-Avg, seed 0: ")
    assert "1 run(s) are missing." in results_table(results).notes
    (tmp_path / "runs" / "cam-avg-seed0").unlink()
    results = run_plan(plan(methods=("layer-cam", "cam-avg")), tiny_manifest, tmp_path)  # tried again, now it works
    assert (len(results.runs), results.failures) == (2, [])


def test_a_wrong_configuration_is_refused_before_anything_runs(tiny_manifest, tmp_path):
    wrong = plan(methods=("cam-avg", "sem"), overrides=(*SHORT, "method.sigma=0.3"))  # only Max-Min has it
    with pytest.raises(ConfigError, match="sigma"):
        run_plan(wrong, tiny_manifest, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_with_too_many_epochs_is_refused(tiny_manifest, tmp_path):
    run_plan(plan(overrides=SMALL), tiny_manifest, tmp_path)
    (tmp_path / "benchmark.json").unlink()
    results = run_plan(plan(), tiny_manifest, tmp_path)
    assert results.runs == []
    assert "was trained for 2 epochs, not 1" in results.failures[0]


def test_changed_masks_are_evaluated_again(tiny_manifest, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(tiny_manifest.root, data)
    manifest = replace(tiny_manifest, root=data)
    before = run_plan(plan(), manifest, tmp_path / "out").runs[0].evaluation["true_foreground_share"]
    for row in manifest.split("test").rows:
        Image.new("L", (64, 64), 255).save(manifest.mask_path(row))
    after = run_plan(plan(), manifest, tmp_path / "out").runs[0].evaluation["true_foreground_share"]
    assert before < after == 1


def test_an_evaluation_of_another_format_is_repeated_without_training(tiny_manifest, tmp_path):
    run_plan(plan(), tiny_manifest, tmp_path)
    before, measured = weights_of(tmp_path), next(tmp_path.glob("runs/*/evaluation/measured-*.json"))
    right = measured.read_text()
    measured.write_text(right.replace('"format": 2', '"format": 1').replace('"f1_plus": ', '"f1_plus": 1'))
    run_plan(plan(), tiny_manifest, tmp_path)
    assert measured.read_text() == right
    assert weights_of(tmp_path) == before


@pytest.mark.parametrize(("masks", "split", "message"), [("test", "valid", "has a mask"), ("", "test", "--split")])
def test_a_split_without_images_or_masks_is_refused(tiny_manifest, tmp_path, masks, split, message):
    rows = tuple(replace(row, mask=row.mask if row.split == masks else "") for row in tiny_manifest.rows)
    rows = rows if masks else tuple(row for row in rows if row.split != split)
    with pytest.raises(DataError, match=message):
        run_plan(plan(split=split), Manifest(rows, tiny_manifest.root), tmp_path)
