"""Figures are written as PDF and PNG, and contain the right values."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from histolumen import losses
from histolumen.data.manifest import Manifest
from histolumen.errors import DataError, RunError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.figures import draw, energies
from histolumen.report.figures.confusion import draw_confusions
from histolumen.report.figures.curves import draw_study, draw_training
from histolumen.report.figures.draw import draw_all
from histolumen.report.figures.qualitative import choose
from histolumen.report.figures.sizes import draw_normal_sizes, draw_sizes
from histolumen.report.runs.runner import RunResult, run_plan
from histolumen.report.study import StudyPlan
from tiny import SMALL, TINY, Recorder


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def names(paths: list[Path]) -> set[str]:
    for path in paths:
        start = path.read_bytes()[:8]
        assert start.startswith(b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")
    pdf, png = ({path.stem for path in paths if path.suffix == ending} for ending in (".pdf", ".png"))
    assert pdf == png
    return pdf


def test_the_energies_are_those_of_the_losses():
    p = np.linspace(0.05, 0.95, 19)
    logits = torch.tensor(np.log(np.stack([p, 1 - p], axis=1)))
    eem = [losses.negative_entropy(row[None]).item() for row in logits]
    sem = [losses.uniform_cross_entropy(row[None]).item() for row in logits]
    assert energies.negative_entropy(p) == pytest.approx(eem)
    assert energies.uniform_cross_entropy(p) == pytest.approx(sem)


@pytest.mark.parametrize(
    ("curve", "slope"),
    [
        (energies.negative_entropy, energies.entropy_slope),
        (energies.uniform_cross_entropy, energies.cross_entropy_slope),
    ],
)
def test_the_derivatives_are_derivatives(curve, slope):
    p, step = np.linspace(0.1, 0.9, 17), 1e-6
    assert slope(p) == pytest.approx((curve(p + step) - curve(p - step)) / (2 * step), rel=1e-4, abs=1e-6)


def test_confusion_matrices_are_normalised_by_the_true_class():
    counts = {"true_negative": 30, "false_positive": 10, "false_negative": 5, "true_positive": 15}
    figure = draw_confusions({"A": counts, "B": counts})
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert shown == ["75.0 %", "25.0 %", "25.0 %", "75.0 %"]


def evaluation(*shares: tuple[float, float]) -> dict:
    return {"per_image": [{"true_foreground_share": true, "foreground_share": found} for true, found in shares]}


def test_sizes_are_sorted_by_the_true_one():
    figure = draw_sizes({("A", "test"): evaluation((0.4, 0.45), (0.1, 0.3))})
    true = next(line for line in figure.axes[0].lines if line.get_label() == "true")
    assert list(true.get_ydata()) == pytest.approx([10, 40])


def test_normal_sizes_need_normal_samples():
    assert draw_normal_sizes({("A", "test"): evaluation((0.4, 0.45))}) is None
    figure = draw_normal_sizes({("A", "test"): evaluation((0, 0.02), (0, 0.04), (0.4, 0.45))})
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "mean 3.00 %"


def test_training_curves_show_accuracy():
    records = [{"epoch": e, "loss": {"total": 1.0}, "train": {"error": 40.0}, "valid": {"error": 25.0}} for e in (1, 2)]
    figure = draw_training({"A": records})
    assert [line.get_ydata()[0] for line in figure.axes[0].lines] == [60.0, 75.0]


def results(seeds: tuple[int, ...]) -> list[RunResult]:
    """F1+ is 70 with seed 0 and 72 with seed 1."""
    plan = StudyPlan(study="lambda", recipe="glas-sem", seeds=seeds)
    scores = {"error": 0.0, "f1_minus": 60.0, "pxap": 80.0}
    return [RunResult(job, {**scores, "f1_plus": 70.0 + 2 * job.config.seed}, 1.0) for job in plan.jobs()]


def test_study_curves_have_one_panel_per_kind():
    figure = draw_study("lambda", results((0,)))
    assert [axes.get_title() for axes in figure.axes] == ["SEM", "EEM"]
    assert figure.axes[0].get_xscale() == "log"
    assert len(figure.axes[0].lines) == 3
    assert len(figure.axes[0].collections) == 0  # no error bars with one seed


def test_study_curves_over_seeds_show_mean_and_spread():
    axes = draw_study("lambda", results((0, 1))).axes[0]
    drawn = {container.get_label(): container for container in axes.containers}
    line, _, (bars,) = drawn["F1+"]
    assert list(line.get_ydata()) == [71.0] * 7
    half = 12.706205 * np.std([70, 72], ddof=1) / np.sqrt(2)
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((71 - half, 71 + half))


def test_a_run_has_its_figures(tiny_run, tmp_path):
    progress = Recorder()
    found = names(draw_all(tiny_run, tmp_path, None, 3, progress))
    assert found == {"energies", "training", "confusion", "sizes", "qualitative"}
    assert "no figure of normal samples" in progress.messages[0]


def test_a_benchmark_has_its_figures(tiny_manifest, tmp_path):
    plan = BenchmarkPlan(
        target="", methods=("all-ones", "cam-avg", "sem"), seeds=(0,), recipe="folder", backbone=None,
        overrides=(*SMALL, "train.epochs=1"), split="test", binarise="true-label",
    )  # fmt: skip
    run_plan(plan, tiny_manifest, tmp_path / "benchmark")
    found = names(draw_all(tmp_path / "benchmark", tmp_path / "figures", None, 2))
    assert found == {"energies", "training", "confusion", "sizes", "qualitative"}


def test_the_runs_of_a_study_with_several_seeds_are_drawn(tiny_manifest, tmp_path, monkeypatch):
    plan = StudyPlan(
        study="ablation", recipe="glas-sem", kinds=("sem",), seeds=(0, 1), overrides=(*TINY, "train.epochs=1")
    )
    run_plan(plan, tiny_manifest, tmp_path / "study")
    shown: list[dict[str, Path]] = []
    real = draw.draw_grid
    monkeypatch.setattr(draw, "draw_grid", lambda runs, *rest: shown.append(runs) or real(runs, *rest))
    progress = Recorder()
    found = names(draw_all(tmp_path / "study", tmp_path / "figures", None, 2, progress))
    assert found == {"energies", "training", "confusion", "qualitative"}
    assert progress.messages == []
    assert list(shown[0]) == ["WILDCAT", "FG only", "FG + BG (SEM)", "FG + BG (SEM) + ASC"]
    assert all(folder.name.endswith("seed=0") for folder in shown[0].values())


def test_a_folder_without_finished_runs_is_refused(tmp_path):
    plan = StudyPlan(study="lambda", recipe="glas-sem")
    (tmp_path / "study.json").write_text(plan.model_dump_json())
    with pytest.raises(RunError, match="contains no finished run"):
        draw_all(tmp_path, tmp_path / "out", None, 3)


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(RunError, match="neither a run nor a benchmark nor a study"):
        draw_all(tmp_path, tmp_path / "out", None, 3)


def test_the_grid_shows_each_class(tiny_manifest):
    rows = choose(tiny_manifest, 5)
    assert [row.label for row in rows] == ["benign"] * 3 + ["malignant"] * 2
    assert len({row.image for row in rows}) == 5
    with pytest.raises(DataError, match="no image of this split has a mask"):
        choose(Manifest((), tiny_manifest.root), 3)
