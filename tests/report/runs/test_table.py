import numpy as np
import pytest

from histolumen.errors import ConfigError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.runs.runner import Results, RunResult
from histolumen.report.runs.table import interval, results_table, table_name
from histolumen.report.study import StudyPlan


def run(job, value: float, **changes: float | None) -> RunResult:
    scores = {**dict.fromkeys(("error", "f1_plus", "f1_minus", "pxap"), value), **changes}
    intervals = {name: [value - 1, value + 1] for name in scores}
    return RunResult(job, {"images": 4, **scores, "interval_95": intervals}, seconds=90.0)


def benchmark(target: str = "glas", seeds: tuple[int, ...] = (0,), binarise: str = "threshold") -> BenchmarkPlan:
    return BenchmarkPlan(
        target=target, methods=("all-ones", "layer-cam", "eem"), seeds=seeds, recipe="glas-cpu", backbone=None,
        split="test", binarise=binarise,
    )  # fmt: skip


def rows(table) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table.rows}


def test_the_interval_over_seeds_is_students():
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert half == pytest.approx(4.302653 * 1 / np.sqrt(3), rel=1e-5)
    assert interval([5.0]) == (5.0, 0.0)


def test_a_single_run_has_its_bootstrap_interval():
    plan = benchmark()
    table = results_table(Results(plan, [run(job, 50.0) for job in plan.jobs()], []))
    assert rows(table)["LayerCAM"][:6] == ["50.00 [49.0, 51.0]"] * 4 + ["1.5", "threshold"]
    assert "4 images" in table.title
    assert any("seed 0" in note for note in table.notes)


def test_seeds_are_one_row_for_benchmark_and_study_alike():
    study = StudyPlan(study="lambda", recipe="glas-sem", kinds=("sem",), seeds=(3, 4))
    for plan in (benchmark(seeds=(3, 4)), study):
        runs = [run(job, 80.0 if job.config.seed == 3 else 84.0) for job in plan.jobs()]
        table = results_table(Results(plan, runs, []))
        half = 12.706205 * np.std([80, 84], ddof=1) / np.sqrt(2)
        assert {cell for row in table.rows for cell in row[1:5]} == {f"82.00 ± {half:.2f}"}
        assert len(table.rows) == len(runs) / 2
        assert any("seeds 3, 4" in note for note in table.notes)


def test_the_papers_scores_are_in_separate_columns():
    plan = benchmark()
    table = results_table(Results(plan, [], []))
    assert table.columns[-3:] == ["paper: error", "paper: F1+", "paper: F1-"]
    assert rows(table)["Max-Min (EEM)"][-3:] == ["0.00", "72.11", "69.07"]
    assert rows(table)["LayerCAM"][-3:] == ["--", "--", "--"]
    assert any("not measured" in note for note in table.notes)
    assert "3 run(s) are missing." in table.notes
    assert "paper: error" not in results_table(Results(benchmark(target=""), [], [])).columns


def test_the_bounds_are_never_marked_as_best():
    plan = benchmark()
    ones, layer_cam, eem = plan.jobs()
    table = results_table(Results(plan, [run(ones, 99, error=0), run(layer_cam, 70), run(eem, 60)], []))
    assert table.bold == {(2, 1), (1, 2), (1, 3), (1, 4)}  # lowest error, highest other scores


def test_undefined_scores_are_dashes():
    plan = benchmark()
    table = results_table(Results(plan, [run(plan.jobs()[0], 50.0, error=None)], []))
    assert rows(table)["All-ones (lower bound)"][0] == "--"


def test_each_binarisation_has_its_own_table():
    assert [table_name(benchmark(binarise=how)) for how in ("threshold", "true-label")] == ["table", "table-true-label"]
    notes = results_table(Results(benchmark(binarise="true-label"), [], [])).notes
    assert any("which uses the true label" in note for note in notes)


def test_pn_has_no_error_as_in_the_paper():
    plan = BenchmarkPlan(
        target="glas", methods=("pn", "cam-avg"), seeds=(0,), recipe="glas-cpu", backbone=None, split="test"
    )
    table = results_table(Results(plan, [run(job, 0.0 if job.title == "PN" else 50.0) for job in plan.jobs()], []))
    assert rows(table)["PN"][0] == "--"
    assert rows(table)["PN"][1].startswith("0.00")
    assert (1, 1) in table.bold  # CAM-Avg has the best of the errors that are shown


def test_the_notes_say_which_rule_the_data_set_has():
    glas, camelyon16 = (
        " ".join(results_table(Results(benchmark(target, binarise="true-label"), [], [])).notes)
        for target in ("glas", "camelyon16")
    )
    assert "which uses the true label" in glas
    assert "the argmax over class maps is a class with foreground (not normal), whatever the label" in camelyon16
    assert "true label" not in camelyon16


def test_rows_say_what_they_start_from():
    plan = BenchmarkPlan(
        target="glas", methods=("cam-avg", "sem", "unet", "all-ones"), seeds=(0,), recipe=None, backbone=None,
        split="test", weights=("resnet18=a/r18.pth", "resnet50=b.pth"),
    )  # fmt: skip
    table = results_table(Results(plan, [], []))
    column = table.columns.index("start")
    assert {row[0]: row[column] for row in table.rows} == {
        "CAM-Avg": "resnet18, r18.pth",
        "Max-Min (SEM)": "resnet18_deep, from scratch",
        "U-Net (full supervision)": "own network, from scratch",
        "All-ones (lower bound)": "--",
    }
    assert "different weights" in table.title
    assert "different weights" not in results_table(Results(benchmark(), [], [])).title


def test_weights_need_an_architecture_and_a_file():
    with pytest.raises(ConfigError, match="ARCHITECTURE=FILE"):
        BenchmarkPlan(
            target="glas", methods=("sem",), seeds=(0,), recipe=None, backbone=None, split="test", weights=("r18.pth",)
        ).jobs()
