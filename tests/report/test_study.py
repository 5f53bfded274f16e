"""Studies: workers share a storage, and one that dies loses nothing but its trial."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from histolumen.errors import ConfigError
from histolumen.report import study as study_module
from histolumen.report.study import read_study, run_study
from histolumen.report.study_plan import StudyPlan
from histolumen.report.study_points import find_kinds, points_of
from histolumen.report.study_table import study_table
from tiny import TINY

SHORT = (*TINY, "train.epochs=1")


def plan(study: str = "ablation", **changes) -> StudyPlan:
    return StudyPlan(**{"study": study, "recipe": "glas-sem", "overrides": SHORT, **changes})


def command(manifest: Path, out: Path, storage: Path) -> list[str]:
    settings = [part for override in SHORT for part in ("--set", override)]
    where = ["--data", str(manifest), "--out", str(out), "--storage", f"sqlite:///{storage}"]
    return [sys.executable, "-m", "histolumen", "study", "ablation", "--recipe", "glas-sem", *where, *settings]


def states(storage: Path) -> list[str]:
    try:
        with sqlite3.connect(f"file:{storage}?mode=ro", uri=True) as database:
            return [state for (state,) in database.execute("select state from trials")]
    except sqlite3.OperationalError:
        return []


def test_the_studies_cover_the_papers_ranges():
    assert [p.label for p in points_of("ablation")] == [
        "WILDCAT", "FG only", "FG + BG (EEM)", "FG + BG (EEM) + ASC", "FG + BG (SEM)", "FG + BG (SEM) + ASC",
    ]  # fmt: skip
    for name, low, high in (("lambda", 1e-7, 1e-1), ("sigma", 0.1, 0.5), ("omega", 1, 10)):
        values = [p.value for p in points_of(name, ("sem",))]
        assert (min(values), max(values)) == (low, high)
        assert values == sorted(values)
        assert len(points_of(name)) == 2 * len(values)


def test_each_point_changes_what_it_says():
    for point in points_of("lambda", ("eem",)):
        config = plan("lambda").config(point)
        assert (config.method.lambda_, config.method.background) == (point.value, "eem")
    for point in points_of("sigma", ("sem",)):
        config = plan("sigma").config(point)
        assert (config.method.sigma, config.method.sigma_step) == (point.value, 0)
    switched = [plan().config(point).method for point in points_of("ablation")[1:]]
    assert [(m.foreground, m.background, m.size_barrier) for m in switched] == [
        (True, "none", False), (True, "eem", False), (True, "eem", True), (True, "sem", False), (True, "sem", True),
    ]  # fmt: skip
    assert plan().config(points_of("ablation")[0]).method.name == "wildcat"


def test_parts_of_the_best_recipe_are_switched_one_at_a_time():
    parts = plan("parts", recipe="glas-best", overrides=(), seeds=(0, 1))
    whole = parts.config(parts.points[0]).as_dict()
    for point in parts.points:
        config = parts.config(point).as_dict()
        assert config["seed"] == point.seed
        changed = {f"{b}.{k}" for b in whole if b != "seed" for k in whole[b] if config[b].get(k) != whole[b][k]}
        wanted = {override.partition("=")[0] for override in point.overrides}
        assert point.method is not None or changed == wanted, point.label
    assert len({point.key for point in parts.points}) == len(parts.points) == 2 * len(points_of("parts"))


def test_several_seeds_are_one_line_of_the_table():
    two = plan("lambda", kinds=("sem",), seeds=(3, 4))
    scores = [dict.fromkeys(study_module.SCORES, value) for value in (80.0, 84.0)]
    results = [
        study_module.PointResult(point, score, 60.0)
        for seed, score in zip((3, 4), scores, strict=True)
        for point in [p for p in two.points if p.seed == seed][:2]
    ]
    table = study_table(two, results)
    assert [row[:2] for row in table.rows] == [
        ["sem lambda=1e-07", "82.00 ± 2.83"],
        ["sem lambda=1e-06", "82.00 ± 2.83"],
    ]
    assert "seeds (3, 4)" in table.notes[0]


def test_only_max_min_can_be_studied():
    with pytest.raises(ConfigError, match="recipe of another method"):
        plan(recipe="glas-cam-avg").config(points_of("ablation")[0])


def test_kinds_are_checked():
    assert find_kinds(["eem"]) == ("eem",)
    with pytest.raises(ConfigError, match="unknown kind 'sen'; did you mean 'sem'"):
        find_kinds(["sen"])


def test_a_study_is_done_once_and_read_again(tiny_manifest, tmp_path):
    said: list[str] = []
    first, failures = run_study(plan(kinds=("sem",)), tiny_manifest, tmp_path, None, said.append)
    assert [r.point.label for r in first] == ["WILDCAT", "FG only", "FG + BG (SEM)", "FG + BG (SEM) + ASC"]
    assert failures == []
    assert len(said) == 4
    again, _ = run_study(plan(kinds=("sem",)), tiny_manifest, tmp_path, None, said.append)
    assert again == first
    assert len(said) == 4  # nothing was trained again
    assert read_study(tmp_path) == (plan(kinds=("sem",)), first)
    table = study_table(plan(kinds=("sem",)), first)
    assert table.rows[1][-3:] == ["1.25", "71.54", "49.23"]


def test_another_set_up_is_another_study(tiny_manifest):
    one, other = plan(), plan(overrides=(*SHORT, "train.lr=0.5"))
    assert one.key(tiny_manifest) != other.key(tiny_manifest)
    assert one.key(tiny_manifest) == plan().key(tiny_manifest)


def test_a_storage_that_cannot_be_opened(tiny_manifest, tmp_path):
    with pytest.raises(ConfigError, match="cannot be opened"):
        run_study(plan(), tiny_manifest, tmp_path, "sqlite:////no/such/folder/study.db")


def test_a_point_that_fails_is_reported_and_the_others_go_on(tiny_manifest, tmp_path, monkeypatch):
    real = study_module.train

    def fails_once(config, *arguments, **options):
        if config.method.name == "wildcat":
            raise ConfigError("broken on purpose")
        return real(config, *arguments, **options)

    monkeypatch.setattr(study_module, "train", fails_once)
    results, failures = run_study(plan(kinds=("eem",)), tiny_manifest, tmp_path, None)
    others = ["FG only", "FG + BG (EEM)", "FG + BG (EEM) + ASC"]
    assert [r.point.label for r in results] == others
    assert failures == ["WILDCAT: broken on purpose"]
    monkeypatch.undo()
    results, failures = run_study(plan(kinds=("eem",)), tiny_manifest, tmp_path, None)
    assert [r.point.label for r in results] == ["WILDCAT", *others]  # tried again, once it can work
    assert failures == []


def test_two_workers_share_the_points_and_one_that_is_killed_loses_nothing(tiny_manifest, tmp_path):
    storage, table = tmp_path / "shared.db", tiny_manifest.root / "manifest.csv"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    victim = subprocess.Popen(command(table, tmp_path / "a", storage), **quiet)
    for _ in range(6000):
        if "RUNNING" in states(storage):
            break  # perhaps before its first heartbeat, which must not matter either
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert states(storage).count("RUNNING") == 1, "it was not at work when it was killed"
    workers = [subprocess.Popen(command(table, tmp_path / name, storage), **quiet) for name in "bc"]
    assert [worker.wait(timeout=400) for worker in workers] == [0, 0]
    b, c = (read_study(tmp_path / name)[1] for name in "bc")
    assert b == c
    assert len(b) == 6
    trained = [path.name for name in "bc" for path in (tmp_path / name / "runs").iterdir()]
    assert len(trained) == len(set(trained))  # no point was trained twice
