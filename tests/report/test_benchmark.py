"""All methods end to end on tiny images; killed and started again; the table's arithmetic."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from histolumen.data.image import read_mask
from histolumen.data.manifest import Manifest
from histolumen.engine.runlog import read_metrics
from histolumen.errors import DataError
from histolumen.report.benchmark import read_benchmark, run_benchmark
from histolumen.report.benchmark_table import benchmark_table, interval
from histolumen.report.plan import Plan
from histolumen.report.rows import ROWS
from tiny import SMALL

PLAN = Plan(
    target="",
    methods=("cam-avg",),
    seeds=(0,),
    recipe="folder",
    backbone=None,
    overrides=SMALL,
    split="test",
    binarise="honest",
)


def command(manifest: Path, out: Path, *options: str) -> list[str]:
    settings = [part for override in SMALL for part in ("--set", override)]
    return [sys.executable, "-m", "histolumen", "benchmark", str(manifest), "--out", str(out), *settings, *options]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "250"}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def whole(tiny_manifest, tmp_path_factory) -> tuple[Path, str]:
    """A benchmark of every method, one epoch each."""
    out = tmp_path_factory.mktemp("benchmark") / "out"
    result = run(command(tiny_manifest.root / "manifest.csv", out, "--set", "train.epochs=1"))
    assert result.returncode == 0, result.stderr
    return out, result.stdout


def table_of(out: Path) -> list[list[str]]:
    with (out / "table.csv").open() as handle:
        return list(csv.reader(handle))


def scores_of(out: Path) -> list[list[str]]:
    """The table without its times, which differ from run to run."""
    header, *lines = table_of(out)
    column = header.index("min/run")
    return [line[:column] + line[column + 1 :] for line in [header, *lines]]


def test_every_method_has_its_line(whole):
    out, printed = whole
    header, *lines = table_of(out)
    assert header == ["method", "error", "F1+", "F1-", "PxAP", "min/run", "binarised"]
    assert [line[0] for line in lines] == [row.title for row in ROWS]
    assert f"run {len(ROWS)} of {len(ROWS)}" in printed
    assert {path.name for path in out.glob("table.*")} == {"table.txt", "table.csv", "table.tex", "table.html"}


def test_what_does_not_classify_has_no_error(whole):
    lines = {line[0]: line[1] for line in table_of(whole[0])}
    assert lines["All-ones (lower bound)"] == lines["U-Net (full supervision)"] == "--"
    assert lines["CAM-Avg"] != "--"


def test_all_ones_equals_the_closed_form(whole, tiny_manifest):
    part = tiny_manifest.split("test")
    shares = [read_mask(part.mask_path(row), (64, 64)).mean() for row in part.rows]
    expected = 100 * np.mean([2 * a / (1 + a) for a in shares])
    run = whole[0] / "runs" / "all-ones-seed0"
    measured = json.loads((run / "evaluation" / "measured-test-honest.json").read_text())
    assert measured["f1_plus"] == pytest.approx(expected)
    assert measured["f1_minus"] == 0
    assert "error" not in measured


def test_a_finished_benchmark_is_only_read_again(whole, tiny_manifest, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole[0], out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/best/*")}
    started = scores_of(out)
    result = run(command(tiny_manifest.root / "manifest.csv", out, "--set", "train.epochs=1"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("(done before)") == len(ROWS)
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/best/*")} == before
    assert scores_of(out) == started


def test_another_binarisation_measures_again_but_does_not_train(whole, tiny_manifest, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole[0], out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/last/*")}
    options = ("--set", "train.epochs=1", "--binarise", "paper", "--methods", "cam-avg", "sem")
    result = run(command(tiny_manifest.root / "manifest.csv", out, *options))
    assert result.returncode == 0, result.stderr
    assert "with the image's true label" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/last/*")} == before
    assert scores_of(out) == scores_of(whole[0])  # the other table is untouched
    assert "honest" not in (out / "table-paper.csv").read_text()


def test_a_longer_run_does_not_stand_for_a_shorter_one(tiny_manifest, tmp_path):
    run_benchmark(PLAN, tiny_manifest, tmp_path)
    shorter = tmp_path / "benchmark.json"
    shorter.unlink()
    result = run_benchmark(PLAN.model_copy(update={"overrides": (*SMALL, "train.epochs=1")}), tiny_manifest, tmp_path)
    assert result.runs == []
    assert "was trained for 2 epochs, not 1" in result.failures[0]


def test_new_masks_are_measured_anew(tiny_manifest, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(tiny_manifest.root, data)
    manifest = replace(tiny_manifest, root=data)
    before = run_benchmark(PLAN, manifest, tmp_path / "out").runs[0].evaluation["true_foreground_share"]
    for row in manifest.split("test").rows:
        Image.new("L", (64, 64), 255).save(manifest.mask_path(row))
    after = run_benchmark(PLAN, manifest, tmp_path / "out").runs[0].evaluation["true_foreground_share"]
    assert before < after == 100


def test_killed_half_way_it_goes_on_and_gives_the_same_table(tiny_manifest, tmp_path):
    table = tiny_manifest.root / "manifest.csv"
    options = ("--set", "train.epochs=3", "--methods", "cam-avg", "sem", "--seeds", "0", "1")
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert run(command(table, unbroken, *options)).returncode == 0

    process = subprocess.Popen(
        command(table, broken, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    half_way = broken / "runs" / "cam-avg-seed1"
    for _ in range(3000):
        if len(read_metrics(half_way)) >= 1:
            break
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(read_metrics(half_way)) < 3, "it was done before it could be killed"
    first = broken / "runs" / "cam-avg-seed0" / "last" / "model.safetensors"
    done_at = first.stat().st_mtime_ns
    result = run(command(table, broken, *options))
    assert result.returncode == 0, result.stderr
    assert "run 1 of 4: cam-avg, seed 0 (done before)" in result.stdout
    assert first.stat().st_mtime_ns == done_at
    assert scores_of(broken) == scores_of(unbroken)


def test_the_interval_over_seeds_is_students():
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert half == pytest.approx(4.302653 * 1 / np.sqrt(3), rel=1e-5)


def test_the_papers_figures_stand_in_columns_of_their_own(whole):
    result = read_benchmark(whole[0])
    named = benchmark_table(type(result)(result.plan.model_copy(update={"target": "glas"}), result.runs, []))
    line = next(line for line in named.rows if line[0] == "Max-Min (EEM)")
    assert named.columns[-3:] == ["paper: error", "paper: F1+", "paper: F1-"]
    assert line[-3:] == ["0.00", "72.11", "69.07"]
    assert any("not measured" in note for note in named.notes)
    layer_cam = next(line for line in named.rows if line[0] == "LayerCAM")
    assert layer_cam[-3:] == ["--", "--", "--"]


def test_one_failing_run_does_not_stop_the_others(tiny_manifest, tmp_path):
    plan = PLAN.model_copy(update={"methods": ("layer-cam", "cam-avg"), "overrides": (*SMALL, "train.epochs=1")})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "cam-avg-seed0").write_text("in the way")
    result = run_benchmark(plan, tiny_manifest, tmp_path)
    assert [run.row.name for run in result.runs] == ["layer-cam"]
    assert len(result.failures) == 1
    assert result.failures[0].startswith("cam-avg, seed 0: ")
    assert any("1 run(s) are missing" in note for note in benchmark_table(result).notes)


@pytest.mark.parametrize(("masks", "split", "message"), [("test", "valid", "has a mask"), ("", "test", "--split")])
def test_a_benchmark_needs_images_with_masks(tiny_manifest, tmp_path, masks, split, message):
    rows = tuple(replace(row, mask=row.mask if row.split == masks else "") for row in tiny_manifest.rows)
    rows = rows if masks else tuple(row for row in rows if row.split != split)
    with pytest.raises(DataError, match=message):
        run_benchmark(PLAN.model_copy(update={"split": split}), Manifest(rows, tiny_manifest.root), tmp_path)


def test_named_benchmarks_want_their_manifest(tmp_path):
    result = run([sys.executable, "-m", "histolumen", "benchmark", "glas", "--out", str(tmp_path / "out")])
    assert result.returncode == 2
    assert "glas.csv" in result.stderr
    assert "Traceback" not in result.stderr
