"""The configurations of the studies; tests/report/runs tests how they are run."""

import json

import pytest

from histolumen.errors import ConfigError, RunError
from histolumen.report.runs.plan import read_plan
from histolumen.report.runs.runner import run_plan
from histolumen.report.runs.table import results_table
from histolumen.report.study import StudyPlan, points_of
from tiny import TINY

SHORT = (*TINY, "train.epochs=1")


def plan(study: str = "ablation", **changes) -> StudyPlan:
    return StudyPlan(**{"study": study, "recipe": "glas-sem", "overrides": SHORT, **changes})


def test_the_studies_cover_the_papers_ranges():
    assert [p.label for p in points_of("ablation")] == [
        "WILDCAT", "FG only", "FG + BG (EEM)", "FG + BG (EEM) + ASC", "FG + BG (SEM)", "FG + BG (SEM) + ASC",
    ]  # fmt: skip
    for name, low, high in (("lambda", 1e-7, 1e-1), ("sigma", 0.1, 0.5), ("omega", 1, 10)):
        values = [p.value for p in points_of(name, ("sem",))]
        assert (min(values), max(values)) == (low, high)
        assert values == sorted(values)
        assert len(points_of(name)) == 2 * len(values)


def test_each_point_changes_the_named_setting():
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
    whole = parts.config(points_of("parts")[0]).as_dict()
    for point in points_of("parts"):
        config = parts.config(point).as_dict()
        changed = {f"{b}.{k}" for b in whole if b != "seed" for k in whole[b] if config[b].get(k) != whole[b][k]}
        wanted = {override.partition("=")[0] for override in point.overrides}
        assert point.method is not None or changed == wanted, point.label
    jobs = parts.jobs()
    assert len({job.key for job in jobs}) == len(jobs) == 2 * len(points_of("parts"))
    assert [job.config.seed for job in jobs] == [0] * len(points_of("parts")) + [1] * len(points_of("parts"))


def test_some_rows_are_studied_first_and_others_later():
    some = plan("parts", recipe="glas-best", overrides=(), rows=("no refinement", "all parts"))
    assert [job.title for job in some.jobs()] == ["all parts", "no refinement"]
    more = plan("parts", recipe="glas-best", overrides=(), rows=("glass kept",)).joined(some)
    assert [job.title for job in more.jobs()] == ["all parts", "no refinement", "glass kept"]
    with pytest.raises(ConfigError, match=r"no row 'no refinment'.*no refinement"):
        plan("parts", recipe="glas-best", overrides=(), rows=("no refinment",))


def test_a_part_that_the_recipe_does_not_have_is_not_studied():
    assert "holes and specks kept" in [job.title for job in plan("parts", recipe="glas-best", overrides=()).jobs()]
    assert "holes and specks kept" not in [
        job.title for job in plan("parts", recipe="folder-best", overrides=()).jobs()
    ]


@pytest.mark.parametrize("change", [{"study": "other"}, {"rows": ["a row of another version"]}])
def test_a_damaged_plan_is_one_error(change, tmp_path):
    stored = {**plan("parts", recipe="glas-best", overrides=()).model_dump(mode="json"), **change}
    (tmp_path / "study.json").write_text(json.dumps(stored))
    with pytest.raises(RunError, match="not a valid plan"):
        read_plan(tmp_path, StudyPlan)


def test_only_max_min_can_be_studied():
    with pytest.raises(ConfigError, match="another method"):
        plan(recipe="glas-cam-avg").config(points_of("ablation")[0])


def test_a_study_from_start_to_table(tiny_manifest, tmp_path):
    results = run_plan(plan(kinds=("sem",), binarise="true-label"), tiny_manifest, tmp_path)
    labels = ["WILDCAT", "FG only", "FG + BG (SEM)", "FG + BG (SEM) + ASC"]
    assert [run.job.title for run in results.runs] == labels
    table = results_table(results)
    assert [row[0] for row in table.rows] == labels
    assert table.rows[1][-3:] == ["1.25", "71.54", "49.23"]
    assert {row[6] for row in table.rows} == {"true-label"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "WILDCAT", "FG-only", "FG---BG--SEM-", "FG---BG--SEM----ASC",
    }  # fmt: skip


def test_without_kinds_both_are_studied():
    assert plan(kinds=()).kinds == plan().kinds == ("sem", "eem")
    assert plan(kinds=("eem", "sem")).kinds == ("sem", "eem")


def test_the_wildcat_row_of_the_ablation_has_its_own_training_and_rule():
    job = next(job for job in plan().jobs() if job.title == "WILDCAT")
    assert (job.config.train.lr_milestones, job.config.train.batch_size) == ((80,), 32)
    assert job.config.method.alpha == 0.6
    assert job.binarise == "true-label"
    assert {job.binarise for job in plan().jobs() if job.title != "WILDCAT"} == {"threshold"}
