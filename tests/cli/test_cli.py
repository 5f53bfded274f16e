"""The command line: valid commands, and bad input, which gives one line and exit code 2."""

import csv
import json
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

import histolumen
from commands import histolumen as run
from tiny import TINY


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """Check that bad input gives exit code 2 and one line without traceback; return the line."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith(("histolumen: ", "left out: "))]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture
def table(tiny_manifest):
    return tiny_manifest.root / "manifest.csv"


def test_version_and_help():
    assert run("--version").stdout == f"histolumen {histolumen.__version__}\n"
    for verb in (
        [],
        ["data"],
        ["data", "glas"],
        ["train"],
        ["evaluate"],
        ["predict"],
        ["recipes"],
        ["doctor"],
        ["encoders"],
        ["demo"],
        ["benchmark"],
        ["complexity"],
        ["study"],
        ["figures"],
        ["report"],
    ):
        result = run(*verb, "--help")
        assert result.returncode == 0
        assert "Usage" in result.stdout


def test_doctor_finds_everything_in_place():
    result = run("doctor")
    assert result.returncode == 0, result.stderr
    assert "everything needed is in place" in result.stdout


def test_encoders_are_listed_with_where_their_weights_are():
    lines = {line.split()[0]: line for line in run("encoders").stdout.splitlines()}
    assert lines["name"].split()[-1] == "weights"
    assert lines["efficientnet_lite0"].endswith("here")
    assert "CC-BY-NC-ND-4.0" in lines["uni2-h"]
    assert "needs a file" in lines["resnet18_deep"]


def test_recipes_are_listed_and_shown(tmp_path):
    assert "glas-sem" in run("recipes").stdout
    shown = run("recipes", "show", "glas-cpu").stdout
    (tmp_path / "mine.yaml").write_text(shown)
    assert (
        run("recipes", "show", tmp_path / "mine.yaml", "--full").stdout
        == run("recipes", "show", "glas-cpu", "--full").stdout
    )
    assert "did you mean 'glas-sem'" in refused(run("recipes", "show", "glas_sem"))


def test_from_a_folder_of_images_to_a_prediction(tmp_path, tiny_manifest):
    """All steps of the tutorial: class folders -> manifest -> check -> train -> evaluate -> predict."""
    for index, row in enumerate(tiny_manifest.rows):
        target = tmp_path / "images" / row.label / f"P{index}_x.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny_manifest.image_path(row), target)
    made = run("data", "folder", tmp_path / "images", "--out", tmp_path / "m.csv", "--patient-pattern", r"(P\d+)_")
    assert made.returncode == 0, made.stderr
    assert run("data", "check", tmp_path / "m.csv").returncode == 0
    settings = [part for override in TINY for part in ("--set", override)]
    trained = run("train", "glas-cpu", "--data", tmp_path / "m.csv", "--out", tmp_path / "run", *settings)
    assert trained.returncode == 0, trained.stderr
    assert "epoch   2 of 2" in trained.stderr
    measured = run("evaluate", tmp_path / "run", "--data", tmp_path / "m.csv", "--json", "-")
    assert json.loads(measured.stdout)["images"] >= 2
    assert (tmp_path / "run" / "evaluation" / "test.csv").is_file()
    predicted = run("predict", tmp_path / "run" / "best", tmp_path / "images", "--out", tmp_path / "out")
    assert predicted.returncode == 0, predicted.stderr
    with (tmp_path / "out" / "predictions.csv").open() as handle:
        records = list(csv.DictReader(handle))
    assert len(records) == len(tiny_manifest.rows)
    for record in records:
        original = Image.open(record["image"])
        soft = np.asarray(Image.open(tmp_path / "out" / record["soft_mask"]))
        mask = np.asarray(Image.open(tmp_path / "out" / record["mask"]))
        assert soft.shape == mask.shape == (original.height, original.width)
        assert soft.dtype == np.uint16
        assert np.array_equal(mask > 0, soft >= 32768)
        assert (tmp_path / "out" / record["overlay"]).is_file()


def test_evaluate_writes_its_scores_into_the_run_folder(tiny_run, table):
    result = run("evaluate", tiny_run, "--data", table, "--split", "valid")
    assert result.returncode == 0, result.stderr
    assert "F1+ (foreground Dice)" in result.stdout
    content = json.loads((tiny_run / "evaluation" / "valid.json").read_text())
    assert {"error", "f1_plus", "f1_minus", "pxap", "miou", "pixel_confusion", "interval_95"} <= set(content)


def test_flips_can_be_chosen_without_another_training(tiny_run, table, tiny_manifest, tmp_path):
    for options in ((), ("--flips",), ("--no-flips",)):
        result = run("evaluate", tiny_run, "--data", table, "--split", "valid", *options)
        assert result.returncode == 0, result.stderr
    own, flips, none = (
        json.loads((tiny_run / "evaluation" / f"valid{suffix}.json").read_text())
        for suffix in ("", "-flips", "-no-flips")
    )
    assert own["pxap"] == none["pxap"] != flips["pxap"]
    image = tiny_manifest.image_path(tiny_manifest.rows[0])
    assert run("predict", tiny_run, image, "--out", tmp_path / "out").returncode == 0
    mixed = run("predict", tiny_run, image, "--out", tmp_path / "out", "--flips")
    assert "another model" in refused(mixed)  # one folder never mixes answers with and without flips
    assert "--set images.test_flips=true" in refused(
        run("evaluate", "glas-cpu", "--data", table, "--folds", 2, "--out", tmp_path / "folds", "--flips")
    )


def test_synthetic_set_from_the_command_line(tmp_path):
    result = run("data", "synthetic", tmp_path / "s", "--images", 6, "--size", 64, "--seed", 1)
    assert result.returncode == 0, result.stderr
    assert run("data", "check", tmp_path / "s" / "manifest.csv").returncode == 0


def test_the_demo_runs(tmp_path):
    """With fewer images, a tiny network and one epoch; docs/results.md has the scores of the full demo."""
    settings = [part for override in (*TINY, "train.epochs=1") for part in ("--set", override)]
    result = run("demo", "--out", tmp_path / "demo", "--images", 12, *settings)
    assert result.returncode == 0, result.stderr
    overlays = list((tmp_path / "demo" / "overlays").iterdir())
    assert len(overlays) == sum(
        ",test," in line for line in (tmp_path / "demo/data/manifest.csv").read_text().splitlines()
    )
    assert Image.open(tmp_path / "demo" / "overlays.png").width > 256
    assert "Demo: synthetic glands" in (tmp_path / "demo" / "report.html").read_text()
    assert "is not empty" in refused(run("demo", "--out", tmp_path / "demo"))


def test_good_images_are_predicted_and_bad_ones_listed(tiny_run, tiny_manifest, tmp_path):
    source = tmp_path / "mixed"
    source.mkdir()
    shutil.copy(tiny_manifest.image_path(tiny_manifest.rows[0]), source / "a.png")
    (source / "b.png").write_bytes(b"not an image")
    shutil.copy(tiny_manifest.image_path(tiny_manifest.rows[1]), source / "c.png")
    result = run("predict", tiny_run, source, "--out", tmp_path / "out")
    assert "b.png: not an image" in refused(result)
    assert "2 of 3 images done" in result.stdout
    assert len(json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "glas-sen", "--data", "{table}", "--out", "{out}"], "did you mean 'glas-sem'"),
        (
            ["train", "glas-sem", "--data", "{table}", "--out", "{out}", "--set", "train.epoch=1"],
            "did you mean 'epochs'",
        ),
        (
            ["train", "glas-sem", "--data", "{table}", "--out", "{out}", "--set", "backbone.name=resnet17"],
            "did you mean 'resnet",
        ),
        (["train", "glas-sem", "--data", "{table}", "--out", "{out}", "--set", "method.name=cam"], "unknown method"),
        (["train", "glas-sem", "--data", "{tmp}/absent.csv", "--out", "{out}"], "absent.csv: no such file"),
        (["train", "glas-sem", "--data", "{table}", "--out", "{run}"], "already holds a run"),
        (["train", "glas-sem", "--data", "{table}", "--out", "{out}", "--devices", "many"], "--devices many"),
        (["evaluate", "{tmp}/absent", "--data", "{table}"], "no such folder"),
        (["benchmark", "{table}", "--out", "{out}", "--methods", "semm"], "did you mean 'sem'"),
        (["predict", "{run}", "{tmp}/absent.png", "--out", "{out}"], "absent.png: no such file"),
        (["predict", "{run}", "{tmp}", "--out", "{out}"], "contains no images"),
        (["data", "glas", "{tmp}", "--out", "{tmp}/m.csv"], "Grade.csv: no such file"),
        (["data", "folder", "{tmp}/absent", "--out", "{tmp}/m.csv"], "no such folder"),
        (["data", "check", "{tmp}/absent.csv"], "no such file"),
    ],
)
def test_user_errors_give_one_line(arguments, message, table, tiny_run, tmp_path):
    filled = [a.format(table=table, run=tiny_run, tmp=tmp_path, out=tmp_path / "out") for a in arguments]
    assert message in refused(run(*filled))
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["evaluate", "RUN", "--data", "TABLE", "--split", "tets"], "'train', 'valid', 'test'"),
        (["benchmark", "TABLE", "--out", "OUT", "--binarise", "honest"], "'threshold', 'true-label'"),
        (["study", "lambda", "--data", "TABLE", "--out", "OUT", "--kinds", "sen"], "'sem', 'eem'"),
        (["study", "lamda", "--data", "TABLE", "--out", "OUT"], "'ablation', 'parts', 'lambda', 'sigma', 'omega'"),
    ],
)
def test_an_invalid_choice_lists_the_valid_ones(arguments, values):
    result = run(*arguments)
    assert result.returncode == 2
    assert values in result.stderr


def test_list_options_are_repeated(table, tmp_path):
    result = run("benchmark", table, "--out", tmp_path / "out", "--seeds", "0", "1")
    assert result.returncode == 2
    assert "unexpected extra argument" in result.stderr


def test_a_missing_training_image_is_named(table, tiny_manifest, tmp_path):
    rows = table.read_text().replace("images/0000.png", "images/gone.png")
    (tmp_path / "m.csv").write_text(rows)
    settings = [part for override in TINY for part in ("--set", override)]
    result = run(
        "train",
        "glas-sem",
        "--data",
        tmp_path / "m.csv",
        "--images",
        tiny_manifest.root,
        "--out",
        tmp_path / "r",
        *settings,
    )
    assert "gone.png: no such file" in refused(result)


def test_a_file_in_place_of_an_output_folder_is_refused_and_kept(tiny_run, table, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("kept")
    result = run("evaluate", tiny_run, "--data", table, "--csv", blocker / "t.csv")
    assert "a file stands where a folder is needed" in refused(result)
    assert blocker.read_text() == "kept"


def test_check_lists_every_problem(tiny_manifest, tmp_path):
    shutil.copytree(tiny_manifest.root, tmp_path / "d")
    (tmp_path / "d" / tiny_manifest.rows[0].image).write_bytes(b"")
    Image.new("L", (3, 3)).save(tmp_path / "d" / tiny_manifest.rows[1].mask)
    result = run("data", "check", tmp_path / "d" / "manifest.csv")
    assert result.returncode == 2
    assert result.stdout.count("problem: ") == 2
