"""The plan of a benchmark, and all methods end to end on tiny images."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from histolumen.data.image import read_mask
from histolumen.errors import ConfigError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.rows import ROWS, find_rows
from tiny import SMALL


def config(name: str, **changes):
    base = {"target": "glas", "methods": (), "seeds": (0,), "recipe": None, "backbone": None, "split": "test"}
    return BenchmarkPlan(**{**base, **changes}).config(find_rows([name])[0], seed=3)


def test_without_a_shared_recipe_each_method_has_its_own():
    assert config("pn").train.epochs == 400
    assert config("unet").train.epochs == 960
    assert config("pn").seed == 3


def test_a_shared_recipe_gives_all_methods_the_same_training():
    shared = [config(name, recipe="glas-cpu") for name in ("cam-avg", "pn", "unet", "sem", "eem")]
    assert len({(c.train, c.backbone, c.images) for c in shared}) == 1


def test_the_recipes_own_method_keeps_its_settings_but_not_its_kind():
    eem, sem = config("eem", recipe="glas-cpu").method, config("sem", recipe="glas-cpu").method
    assert (eem.background, sem.background) == ("eem", "sem")
    assert eem.sigma == sem.sigma == 0.35


def test_every_method_has_the_alignment_of_the_recipe():
    assert config("cam-avg").method.alignment == "corners"
    assert config("cam-avg", recipe="glas-cpu").method.alignment == "centres"


def test_which_class_has_no_foreground_is_a_fact_about_the_data_set():
    for name in ("cam-avg", "negev", "eem"):
        assert config(name, target="camelyon16").images.negative_class == "normal"
        shared = config(name, target="camelyon16", recipe="glas-cpu").images
        assert (shared.negative_class, shared.short_side) == ("normal", 320)
        assert config(name, target="glas", recipe="glas-cpu").images.negative_class is None
        assert config(name, target="", recipe="metastases-demo").images.negative_class == "normal"


def test_all_ones_is_not_trained():
    assert config("all-ones", recipe="glas-cpu").train.epochs == 1


def test_backbone_and_overrides_reach_every_run():
    found = config("cam-max", backbone="efficientnet_lite0", overrides=("train.epochs=2",))
    assert (found.backbone.name, found.backbone.weights, found.train.epochs) == ("efficientnet_lite0", "auto", 2)


def test_wrong_names_are_refused():
    with pytest.raises(ConfigError, match="epocs"):
        config("cam-max", overrides=("train.epocs=2",))
    with pytest.raises(ConfigError, match="did you mean 'cam-avg'"):
        config("cam-max", methods=("cam-avgg",))


def benchmark(*options: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "250"}
    arguments = [sys.executable, "-m", "histolumen", "benchmark", *map(str, options)]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def short(tiny_manifest) -> list[object]:
    """The manifest, and options that reduce every run to one short epoch."""
    settings = [part for override in (*SMALL, "train.epochs=1") for part in ("--set", override)]
    return [tiny_manifest.root / "manifest.csv", *settings]


@pytest.fixture(scope="module")
def whole(short, tmp_path_factory) -> Path:
    """A benchmark of every method."""
    out = tmp_path_factory.mktemp("benchmark") / "out"
    result = benchmark(*short, "--out", out)
    assert result.returncode == 0, result.stderr
    return out


def table_of(out: Path) -> list[list[str]]:
    with (out / "table.csv").open() as handle:
        return list(csv.reader(handle))


def test_every_method_has_its_row(whole):
    header, *lines = table_of(whole)
    assert header == ["method", "error", "F1+", "F1-", "PxAP", "min/run", "binarised", "start"]
    assert [line[0] for line in lines] == [row.title for row in ROWS]
    assert {path.name for path in whole.glob("table.*")} == {"table.txt", "table.csv", "table.tex", "table.html"}


def test_methods_that_do_not_classify_have_no_error(whole):
    lines = {line[0]: line[1] for line in table_of(whole)}
    assert lines["All-ones (lower bound)"] == lines["U-Net (full supervision)"] == "--"
    assert lines["CAM-Avg"] != "--"


def test_all_ones_equals_the_closed_form(whole, tiny_manifest):
    part = tiny_manifest.split("test")
    shares = [read_mask(part.mask_path(row), (64, 64)).mean() for row in part.rows]
    expected = 100 * np.mean([2 * a / (1 + a) for a in shares])
    run = whole / "runs" / "all-ones-seed0"
    measured = json.loads((run / "evaluation" / "measured-test-threshold.json").read_text())
    assert measured["f1_plus"] == pytest.approx(expected)
    assert measured["f1_minus"] == 0
    assert "error" not in measured


def test_a_finished_benchmark_is_only_read_again(whole, short):
    before = {path: path.stat().st_mtime_ns for path in whole.glob("runs/*/best/*")}
    table = table_of(whole)
    result = benchmark(*short, "--out", whole)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("already done") == len(ROWS)
    assert {path: path.stat().st_mtime_ns for path in whole.glob("runs/*/best/*")} == before
    assert table_of(whole) == table


def test_another_binarisation_evaluates_again_without_training(whole, short, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole, out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/last/*")}
    chosen = ("--binarise", "true-label", "--methods", "cam-avg", "--methods", "sem")
    result = benchmark(*short, "--out", out, *chosen)
    assert result.returncode == 0, result.stderr
    assert "which uses the true label" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/last/*")} == before
    assert table_of(out) == table_of(whole)  # the other table is untouched
    assert "threshold" not in (out / "table-true-label.csv").read_text()


def test_named_benchmarks_need_their_manifest(tmp_path):
    result = benchmark("glas", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "glas.csv" in result.stderr
    assert "Traceback" not in result.stderr
