"""Two processes never write to one folder: the second is refused, or waits, and the first is not disturbed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from commands import histolumen
from histolumen.engine.slides.batch import do_slide, plan_jobs
from histolumen.engine.slides.predict import SlideSettings
from histolumen.engine.train import train
from histolumen.errors import LockedError
from histolumen.locking import exclusive
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.runs.plan import save_plan
from histolumen.report.runs.runner import run_job
from tiny import SMALL, TINY, Recorder


def test_two_trainings_into_one_folder_at_once(tiny_manifest, tmp_path):
    """One finishes its run; the other ends with one line that names the first, and leaves no trace."""
    settings = [part for override in (*TINY, "train.epochs=5") for part in ("--set", override)]
    command = [sys.executable, "-m", "histolumen", "train", "glas-sem", "--out", tmp_path / "run", *settings]
    command += ["--data", tiny_manifest.root / "manifest.csv"]
    both = [
        subprocess.Popen([*command, "--set", f"seed={seed}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for seed in (0, 1)
    ]
    errors = [process.communicate(timeout=240)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], errors
    loser = both.index(next(process for process in both if process.returncode == 2))
    assert f"process {both[1 - loser].pid}" in errors[loser] or "already holds a run" in errors[loser]
    assert "Traceback" not in errors[loser]
    assert f"seed: {1 - loser}" in (tmp_path / "run" / "config.yaml").read_text()
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 5
    assert not list((tmp_path / "run").glob(".lock*"))


def test_a_training_does_not_start_in_a_folder_that_is_being_written(tiny_manifest, tiny_config, tmp_path):
    with exclusive(tmp_path / "run"):
        with pytest.raises(LockedError, match=f"run: another process is writing here .*process {os.getpid()}"):
            train(tiny_config(), tiny_manifest, tmp_path / "run")
        assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", ".lock.json"}


def test_a_run_of_a_benchmark_that_train_is_writing_is_held(tiny_manifest, tmp_path):
    (job,) = BenchmarkPlan(
        target="glas", methods=("cam-avg",), recipe=None, backbone=None, seeds=(0,), overrides=SMALL, split="test"
    ).jobs()
    with exclusive(tmp_path / "runs" / job.key):
        outcome = run_job(job, tiny_manifest, tmp_path, "test")
    assert outcome.status == "held"
    assert f"process {os.getpid()}" in outcome.reason


def test_plans_of_two_calls_are_joined_one_after_the_other(tmp_path, monkeypatch):
    """Reading, joining and writing the plan is one step: else one of two calls would be forgotten."""
    first = BenchmarkPlan(target="glas", methods=("cam-avg",), recipe=None, backbone=None, seeds=(0,), split="test")
    monkeypatch.setattr("histolumen.locking.time.sleep", lambda _: pytest.fail("waited, as it should"))
    with exclusive(tmp_path, "plan.lock"), pytest.raises(pytest.fail.Exception, match="waited"):
        save_plan(first, tmp_path)
    assert save_plan(first, tmp_path).methods == ("cam-avg",)


def test_predictions_are_not_written_into_a_folder_in_use(tiny_run, tiny_manifest, tmp_path):
    with exclusive(tmp_path / "out"):
        image = tiny_manifest.image_path(tiny_manifest.rows[0])
        result = histolumen("predict", tiny_run, image, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "out: another process is writing here" in result.stderr


def test_a_slide_that_another_process_predicts_is_waited_for(tiny_run, gland_slide, tmp_path, monkeypatch):
    settings = SlideSettings(tile=256, overlap=64, model_mpp=0.5, flips=False)
    ((job,), _) = plan_jobs(tiny_run, [gland_slide], tmp_path, settings)
    holder = exclusive(job.folder)
    holder.__enter__()
    monkeypatch.setattr("histolumen.locking.time.sleep", lambda _: holder.__exit__(None, None, None))
    progress = Recorder()
    assert do_slide(job, progress).state == "done"
    assert any("another process is writing here" in message for message in progress.messages)
    assert not list(job.folder.glob(".lock*"))


def test_patches_are_not_cut_into_a_folder_in_use(tmp_path):
    (tmp_path / "slides").mkdir()
    with exclusive(tmp_path / "out"):
        result = histolumen("data", "camelyon16", tmp_path / "slides", "--out", tmp_path / "out")
        drawn = histolumen("data", "synthetic", tmp_path / "out", "--images", 6, "--size", 64)
    for refusal in (result, drawn):
        assert refusal.returncode == 2
        assert "out: another process is writing here" in refusal.stderr


def test_a_run_may_be_read_while_it_is_trained(tiny_run, tiny_manifest):
    with exclusive(tiny_run):
        table = replace(tiny_manifest).root / "manifest.csv"
        assert histolumen("evaluate", tiny_run, "--data", table, "--split", "valid").returncode == 0
