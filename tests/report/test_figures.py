"""Figures are written as PDF and PNG, and contain the right values."""

import shutil
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from histolumen import losses
from histolumen.calibration import with_temperature
from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest, read_manifest
from histolumen.encoders.batchnorm import Case
from histolumen.engine.model import load
from histolumen.engine.train import train
from histolumen.errors import DataError, RunError
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.figures import draw, energies
from histolumen.report.figures.classification import draw_reliability, draw_roc, roc_points
from histolumen.report.figures.confusion import draw_confusions
from histolumen.report.figures.curves import draw_studies, draw_training
from histolumen.report.figures.draw import draw_all
from histolumen.report.figures.pictures import DrawnRun, choose, evenly_of_all, file_name
from histolumen.report.figures.regions import _probabilities, find_regions, has_regions
from histolumen.report.figures.sizes import draw_normal_sizes, draw_sizes
from histolumen.report.runs.plan import save_plan
from histolumen.report.runs.runner import RunResult, run_folder, run_plan
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


def classified() -> dict:
    """Four images; the second malignant one is taken for benign."""
    p_malignant = (("benign", 0.2), ("benign", 0.6), ("malignant", 0.9), ("malignant", 0.3))
    images = []
    for label, p in p_malignant:
        answer = "malignant" if p > 0.5 else "benign"
        images.append(
            {"label": label, "probability": max(p, 1 - p), "wrong": int(answer != label)}
            | {"p_benign": 1 - p, "p_malignant": p}
        )
    return {"per_image": images, "auc": 75.0, "ece": 30.0}


def test_a_roc_curve_goes_through_its_points():
    figure = draw_roc({"A": classified()})
    curve = figure.axes[0].lines[1]
    assert list(curve.get_xdata()) == pytest.approx([0, 0, 50, 50, 100])
    assert list(curve.get_ydata()) == pytest.approx([0, 50, 50, 100, 100])
    assert "area 75.0 %" in figure.axes[0].get_title()


def test_tied_scores_are_one_point_of_the_curve():
    false_alarms, found = roc_points(np.array([True, False, True]), np.array([0.5, 0.5, 0.5]))
    assert (list(false_alarms), list(found)) == ([0, 1], [0, 1])


def test_a_roc_curve_needs_two_classes():
    three = classified()
    three["per_image"] = [image | {"p_normal": 0.0} for image in three["per_image"]]
    assert draw_roc({"A": three}) is None


def test_a_reliability_diagram_shows_the_accuracy_of_each_bin():
    axes = draw_reliability({"A": classified()}).axes[0]
    bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in axes.patches}
    assert bars == {85: 100, 65: 0, 95: 100, 75: 0}


def test_training_curves_show_accuracy():
    records = [{"epoch": e, "loss": {"total": 1.0}, "train": {"error": 40.0}, "valid": {"error": 25.0}} for e in (1, 2)]
    figure = draw_training({"A": records})
    assert [line.get_ydata()[0] for line in figure.axes[0].lines] == [60.0, 75.0]


def results(seeds: tuple[int, ...], study: str = "lambda", kinds: tuple[str, ...] = ()) -> list[RunResult]:
    """F1+ is 70 with seed 0 and 72 with seed 1."""
    plan = StudyPlan(study=study, recipe="glas-sem", seeds=seeds, kinds=kinds)
    scores = {"error": 0.0, "f1_minus": 60.0, "pxap": 80.0}
    return [RunResult(job, {**scores, "f1_plus": 70.0 + 2 * job.config.seed}, 1.0) for job in plan.jobs()]


def test_study_curves_have_one_panel_per_kind():
    figure = draw_studies({"lambda": results((0,))})
    assert [axes.get_title() for axes in figure.axes] == ["SEM", "EEM"]
    assert figure.axes[0].get_xscale() == "log"
    assert len(figure.axes[0].lines) == 3
    assert len(figure.axes[0].collections) == 0  # no error bars with one seed


def test_study_curves_over_seeds_show_mean_and_spread():
    axes = draw_studies({"lambda": results((0, 1))}).axes[0]
    drawn = {container.get_label(): container for container in axes.containers}
    line, _, (bars,) = drawn["F1+"]
    assert list(line.get_ydata()) == [71.0] * 7
    half = 12.706205 * np.std([70, 72], ddof=1) / np.sqrt(2)
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((71 - half, 71 + half))


def test_three_studies_are_one_figure_of_three_rows():
    studies = {name: results((0,), name) for name in ("lambda", "sigma", "omega")}
    figure = draw_studies(studies)
    labels = [(axes.get_xlabel(), axes.get_title()) for axes in figure.axes]
    assert labels == [(f"$\\{name}$", kind) for name in studies for kind in ("SEM", "EEM")]
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 2 + ["linear"] * 4


def test_a_kind_that_one_study_lacks_leaves_its_panel_empty():
    figure = draw_studies({"lambda": results((0,), kinds=("eem",)), "sigma": results((0,), "sigma")})
    assert [axes.axison for axes in figure.axes] == [False, True, True, True]
    assert figure.axes[1].get_legend() is not None


CLASSES = {"roc", "reliability"}
RUN_FIGURES = {"energies", "training", "regions", "samples", "confusion", "sizes", "qualitative"} | CLASSES
PER_CLASS = {"qualitative-benign", "qualitative-malignant"}


def test_a_run_has_its_figures(tiny_run, tmp_path):
    progress = Recorder()
    found = names(draw_all([tiny_run], tmp_path, images=2, progress=progress))
    assert found == RUN_FIGURES | PER_CLASS
    assert "no figure of normal samples" in progress.messages[0]


def test_a_run_without_masks_still_shows_what_it_predicts(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    manifest = read_manifest(tiny_run / "manifest.csv")
    bare = Manifest(tuple(replace(row, mask="") for row in manifest.rows), manifest.root)
    bare.write(run / "manifest.csv")
    progress = Recorder()
    found = names(draw_all([run], tmp_path / "figures", images=1, progress=progress))
    assert found == {"energies", "training", "regions", "samples"} | CLASSES
    assert progress.messages == ["split 'test' has no masks: confusion, sizes and qualitative are not drawn"]


def test_a_benchmark_has_its_figures(tiny_manifest, tmp_path, monkeypatch):
    plan = BenchmarkPlan(
        target="", methods=("all-ones", "cam-avg", "sem"), seeds=(0,), recipe="folder", backbone=None,
        overrides=(*SMALL, "train.epochs=1"), split="test", binarise="true-label",
    )  # fmt: skip
    run_plan(plan, tiny_manifest, tmp_path / "benchmark")
    found = names(draw_all([tmp_path / "benchmark"], tmp_path / "figures", images=1))
    binarised = {"samples", "confusion", "sizes", "qualitative"} | PER_CLASS
    others = {"energies", "training", "regions-Max-Min-SEM"} | CLASSES
    assert found == {f"{name}-true-label" for name in binarised} | others
    monkeypatch.setattr(draw, "save", lambda _figure, _folder, name: [name])  # rendering takes most of the time
    assert binarised <= set(draw_all([tmp_path / "benchmark"], tmp_path / "other", images=1, binarise="threshold"))
    for rule in ("true-label", "threshold"):
        assert (tmp_path / f"benchmark/runs/cam-avg-seed0/evaluation/measured-test-{rule}.json").is_file()


def test_the_runs_of_a_study_with_several_seeds_are_drawn(tiny_manifest, tmp_path, monkeypatch):
    plan = StudyPlan(
        study="ablation", recipe="glas-sem", kinds=("sem",), seeds=(0, 1), overrides=(*TINY, "train.epochs=1")
    )
    run_plan(plan, tiny_manifest, tmp_path / "study")
    shown: list[dict[str, DrawnRun]] = []
    real = draw.draw_grids
    monkeypatch.setattr(draw, "draw_grids", lambda runs, *rest: shown.append(runs) or real(runs, *rest))
    progress = Recorder()
    found = names(draw_all([tmp_path / "study"], tmp_path / "figures", images=2, progress=progress))
    assert found == {"energies", "training", "confusion", "qualitative"} | PER_CLASS | CLASSES
    assert progress.messages == []
    assert list(shown[0]) == ["WILDCAT", "FG only", "FG + BG (SEM)", "FG + BG (SEM) + ASC"]
    assert all(run.folder.name.endswith("seed=0") for run in shown[0].values())
    assert [run.binarise for run in shown[0].values()] == ["true-label"] + ["threshold"] * 3  # as in the table


def test_a_folder_without_finished_runs_is_refused(tmp_path):
    plan = StudyPlan(study="lambda", recipe="glas-sem")
    (tmp_path / "study.json").write_text(plan.model_dump_json())
    with pytest.raises(RunError, match="contains no finished run"):
        draw_all([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_folder_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(RunError, match="neither a run nor a benchmark nor a study"):
        draw_all([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_finished_epoch_is_refused(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns("best", "last"))
    with pytest.raises(RunError, match="no model here"):
        draw_all([run], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_studies_of_several_settings_are_drawn_together(tiny_manifest, tiny_run, tmp_path):
    for study in ("omega", "lambda"):
        plan = StudyPlan(study=study, recipe="glas-sem", kinds=("sem",), overrides=(*TINY, "train.epochs=1"))
        jobs = plan.jobs()[:2]  # two points are enough for a curve
        for job in jobs:
            train(job.config, tiny_manifest, run_folder(tmp_path / study, job))
        save_plan(plan, tmp_path / study)
    out = tmp_path / "figures"
    assert names(draw_all([tmp_path / "omega", tmp_path / "lambda"], out)) == {"energies", "study-lambda-omega"}
    assert names(draw_all([tmp_path / "omega"], out)) == {"energies", "study-omega"}
    with pytest.raises(RunError, match="only if each is a study of lambda, sigma or omega"):
        draw_all([tmp_path / "omega", tiny_run], tmp_path / "none")
    with pytest.raises(RunError, match="two of the folders are studies of omega"):
        draw_all([tmp_path / "omega", tmp_path / "omega"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_each_class_has_its_own_rows(tiny_manifest):
    by_class = choose(tiny_manifest, 3)
    assert {label: len(rows) for label, rows in by_class.items()} == {"benign": 3, "malignant": 3}
    rows = evenly_of_all(by_class, 5)
    assert [row.label for row in rows] == ["benign"] * 3 + ["malignant"] * 2
    assert len({row.image for row in rows}) == 5
    assert rows[0] == by_class["benign"][0]
    assert rows[4] == by_class["malignant"][-1]
    with pytest.raises(DataError, match="no image of this split has a mask"):
        choose(Manifest((), tiny_manifest.root), 3)


def test_file_names_have_no_unusual_characters():
    assert file_name("regions", "Max-Min (SEM)") == "regions-Max-Min-SEM"
    assert file_name("qualitative", "a/b c") == "qualitative-a-b-c"


class TestRegions:
    @pytest.fixture
    def model(self, tiny_run):
        return load(tiny_run)

    def test_the_two_regions_make_up_the_image(self, model, tiny_manifest):
        image = read_image(tiny_manifest.image_path(tiny_manifest.rows[0]))
        found = find_regions(model, image)
        assert np.abs(found.image.astype(int) - image).max() <= 1  # the images have working size
        neutral = 255 * model.method.backbone.mean.view(3).numpy()
        parts = found.foreground.astype(float) + found.background - neutral  # masked pixels have the mean colour
        assert np.abs(parts - image).max() <= 2
        mask = found.mask[..., None]
        assert np.abs(found.foreground - (image * mask + neutral * (1 - mask))).max() <= 2

    def test_the_mask_and_the_class_of_the_foreground_are_those_of_the_prediction(self, model, tiny_manifest):
        image = read_image(tiny_manifest.image_path(tiny_manifest.rows[0]))
        found, prediction = find_regions(model, image), model.predict(image)
        assert found.mask == pytest.approx(prediction.soft_mask, abs=1e-6)
        assert found.on_foreground == pytest.approx(list(prediction.probabilities.values()), abs=1e-6)
        assert sum(found.on_background) == pytest.approx(1)
        assert found.on_background != pytest.approx(found.on_foreground)

    def test_the_background_is_classified_as_in_training(self, model, tiny_manifest):
        """The same scores as the term that makes C uncertain on X-."""
        image = read_image(tiny_manifest.image_path(tiny_manifest.rows[0]))
        found = find_regions(model, image)
        X = model.method.backbone.normalise(torch.from_numpy(image).permute(2, 0, 1)[None] / 255)
        with torch.no_grad():
            mask = torch.from_numpy(found.mask)[None, None]
            scores = model.method._classify_regions(model.method.classifier, X, mask)[Case.BACKGROUND]
        expected = with_temperature(scores.softmax(1)[0].numpy(), model.temperature)
        assert found.on_background == pytest.approx(expected, abs=1e-5)

    def test_other_methods_have_no_regions(self, model):
        assert has_regions(model)
        model.method.classifier = None
        assert not has_regions(model)

    def test_many_classes_show_the_most_probable_ones(self):
        text = _probabilities(list("abcdef"), [0.3, 0.0, 0.3, 0.01, 0.2, 0.19])
        assert text == "a 0.30   c 0.30   e 0.20   f 0.19"
