"""The reports of benchmarks and studies."""

import pytest

from commands import histolumen
from histolumen.errors import RunError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.html.plan import find_plan, plan_page
from histolumen.report.html.write import write_report
from histolumen.report.runs.plan import save_plan
from histolumen.report.runs.runner import run_plan
from histolumen.report.study import StudyPlan
from tiny import SMALL, TINY


def benchmark_plan(**changes: object) -> BenchmarkPlan:
    settings = {"target": "", "methods": ("all-ones", "cam-avg"), "seeds": (0,), "recipe": "folder", "backbone": None}
    return BenchmarkPlan(**{**settings, "overrides": (*SMALL, "train.epochs=1"), "split": "valid", **changes})


def section(page, title):
    return next(section for section in page.sections if section.title == title)


def test_methods_are_compared_on_the_same_images(tiny_manifest, tmp_path):
    run_plan(benchmark_plan(), tiny_manifest, tmp_path)
    page = plan_page(tmp_path, find_plan(tmp_path), count=2)
    table, *charts = section(page, "Scores").blocks
    assert [row[0] for row in table.table.rows] == ["All-ones (lower bound)", "CAM-Avg"]
    assert [chart.title for chart in charts] == ["F1+", "F1-", "PxAP"]
    gallery = section(page, "Comparison").blocks[0]
    assert gallery.layers == ["image", "All-ones (lower bound)", "CAM-Avg"]
    assert len(gallery.cards) == 2
    assert [headline.beside for headline in page.headlines] == ["CAM-Avg"] * 3  # bounds are not ranked


def test_a_command_writes_its_report(tiny_manifest, tmp_path):
    settings = [part for override in (*SMALL, "train.epochs=1") for part in ("--set", override)]
    table = tiny_manifest.root / "manifest.csv"
    arguments = ["benchmark", table, "--methods", "all-ones", "--split", "valid", *settings, "--out", tmp_path / "b"]
    assert histolumen(*arguments, "--no-report").returncode == 0
    assert not (tmp_path / "b" / "report.html").exists()
    result = histolumen(*arguments)
    assert f"report: {tmp_path / 'b' / 'report.html'}" in result.stdout
    assert "Benchmark" in (tmp_path / "b" / "report.html").read_text()


def test_a_study_of_one_setting_has_curves(tiny_manifest, tmp_path, monkeypatch):
    from histolumen.report import study

    monkeypatch.setitem(study._VALUES, "lambda", (1e-3, 1e-1))
    plan = StudyPlan(study="lambda", recipe="glas-sem", kinds=("sem",), overrides=(*TINY, "train.epochs=1"))
    run_plan(plan, tiny_manifest, tmp_path)
    page = plan_page(tmp_path, plan, count=1)
    chart = section(page, "Scores").blocks[1]
    assert chart.x.log
    assert [[x for x, _ in series.points] for series in chart.series] == [[1e-3, 1e-1]] * 3
    assert write_report(tmp_path).is_file()


def test_an_unfinished_plan_is_refused(tmp_path):
    save_plan(benchmark_plan(), tmp_path)
    with pytest.raises(RunError, match="no run yet"):
        write_report(tmp_path)
