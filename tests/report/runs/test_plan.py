import json

import pytest

from histolumen.errors import RunError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.runs.plan import read_plan, save_plan
from histolumen.report.study import StudyPlan

BENCHMARK = {"target": "glas", "methods": ("sem",), "seeds": (1,), "recipe": None, "backbone": None, "split": "test"}


def benchmark(**changes) -> BenchmarkPlan:
    return BenchmarkPlan(**{**BENCHMARK, **changes})


def test_a_folder_keeps_the_methods_and_seeds_of_earlier_calls(tmp_path):
    save_plan(benchmark(), tmp_path)
    both = save_plan(benchmark(methods=("cam_avg",), seeds=(0,)), tmp_path)
    assert (both.methods, both.seeds) == (("cam-avg", "sem"), (0, 1))
    assert read_plan(tmp_path, BenchmarkPlan) == both
    with pytest.raises(RunError, match="recipe None, not 'glas-cpu'"):
        save_plan(benchmark(recipe="glas-cpu"), tmp_path)


def test_the_recipes_own_seed_and_given_seeds_do_not_mix(tmp_path):
    save_plan(StudyPlan(study="lambda", recipe="glas-sem"), tmp_path)
    with pytest.raises(RunError, match="--seeds"):
        save_plan(StudyPlan(study="lambda", recipe="glas-sem", seeds=(0,)), tmp_path)


@pytest.mark.parametrize(("former", "now"), [("honest", "threshold"), ("paper", "true-label")])
def test_plans_with_former_names_are_read(tmp_path, former, now):
    old = {**BENCHMARK, "overrides": [], "binarise": former}
    (tmp_path / "benchmark.json").write_text(json.dumps(old))
    assert read_plan(tmp_path, BenchmarkPlan).binarise == now


def test_a_study_file_with_scores_is_read(tmp_path):
    plan = {"study": "lambda", "recipe": "glas-sem", "overrides": [], "kinds": ["sem"], "seeds": [], "split": "valid"}
    (tmp_path / "study.json").write_text(json.dumps({"plan": plan, "points": [{"seconds": 1.0}]}))
    read = read_plan(tmp_path, StudyPlan)
    assert (read.study, read.kinds, read.binarise) == ("lambda", ("sem",), "threshold")
    assert read.jobs()[0].key == "sem-lambda=1e-07"  # the run folders keep their names


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"target": 3}'])
def test_a_file_that_is_not_a_plan_is_refused(tmp_path, content):
    (tmp_path / "benchmark.json").write_text(content)
    with pytest.raises(RunError, match="not a valid plan"):
        read_plan(tmp_path, BenchmarkPlan)
