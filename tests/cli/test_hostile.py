"""Places that cannot be written, numbers that are none, and inputs by the thousand: one helpful line each."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import histolumen
from commands import histolumen as run
from tiny import TINY

SETTINGS = [part for override in TINY for part in ("--set", override)]


@pytest.fixture
def table(tiny_manifest):
    return tiny_manifest.root / "manifest.csv"


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a pseudo file system")
@pytest.mark.parametrize("place", ["/proc/x", "/sys/x"])
@pytest.mark.parametrize(
    "command", ["train", "predict", "slide", "benchmark", "data folder", "data synthetic", "evaluate"]
)
def test_output_into_a_pseudo_file_system_is_refused(
    command, place, tiny_run, tiny_manifest, table, gland_slide, tmp_path
):
    image = tiny_manifest.image_path(tiny_manifest.rows[0])
    (tmp_path / "c").mkdir()
    shutil.copy(image, tmp_path / "c" / "x.png")
    arguments = {
        "train": ["train", "glas-sem", "--data", table, *SETTINGS, "--out", place],
        "predict": ["predict", tiny_run, image, "--out", place],
        "slide": ["slide", tiny_run, gland_slide, "--model-mpp", 0.5, "--out", place],
        "benchmark": ["benchmark", table, "--methods", "cam-avg", "--out", place],
        "data folder": ["data", "folder", tmp_path, "--out", f"{place}/m.csv"],
        "data synthetic": ["data", "synthetic", place, "--images", 6],
        "evaluate": ["evaluate", tiny_run, "--data", table, "--json", f"{place}/x.json"],
    }[command]
    message = refused(run(*arguments))
    assert place in message
    assert "choose" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_into_a_full_device_is_one_line(tiny_run, table):
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "histolumen", "recipes", "show", "glas-sem"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert "standard output" in refused(result)
    assert "No space left" in result.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "1e9"])
@pytest.mark.parametrize("option", ["--model-mpp", "--slide-mpp"])
def test_a_resolution_must_be_one(option, value, tiny_run, gland_slide, tmp_path):
    message = refused(run("slide", tiny_run, gland_slide, "--out", tmp_path / "out", option, value))
    assert option in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("setting", ["train.lr=nan", "train.weight_decay=inf", "images.mpp=nan", "method.sigma=nan"])
def test_settings_must_be_finite(setting, table, tmp_path):
    message = refused(run("train", "glas-sem", "--data", table, "--out", tmp_path / "r", *SETTINGS, "--set", setting))
    assert setting.partition("=")[0] in message


def test_min_area_must_be_finite(tiny_run, gland_slide, tmp_path):
    assert "--min-area" in refused(run("slide", tiny_run, gland_slide, "--out", tmp_path / "o", "--min-area", "nan"))


def test_very_many_missing_images_give_a_short_list(tiny_run, tmp_path):
    result = run("predict", tiny_run, *(tmp_path / f"{number}.png" for number in range(300)), "--out", tmp_path / "out")
    message = refused(result)
    assert message.count("left out: ") <= 11
    assert "... and 290 more" in message


def test_an_existing_file_is_not_replaced_by_scores(tiny_run, table, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    for option in ("--json", "--csv"):
        arguments = ["evaluate", tiny_run, "--data", table, "--split", "valid", option, mine]
        assert "add --overwrite" in refused(run(*arguments))
        assert mine.read_text() == "kept"
    assert run(*arguments, "--overwrite").returncode == 0
    assert mine.read_text() != "kept"


def test_an_evaluation_names_its_model_manifest_and_version(tiny_run, tiny_manifest, table, tmp_path):
    result = run("evaluate", tiny_run, "--data", table, "--split", "valid", "--json", tmp_path / "x.json")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "x.json").read_text())["made_with"] == {
        "histolumen": histolumen.__version__,
        "model": histolumen.load(tiny_run).identity,
        "manifest": tiny_manifest.digest,
    }


def test_a_leak_of_patients_is_refused_everywhere(tiny_run, tiny_manifest, table, tmp_path):
    lines = table.read_text().splitlines()
    leaky = [line.rstrip(",") + ",p1" for line in lines[1:]]
    path = tmp_path / "m.csv"
    path.write_text("\n".join([lines[0], *leaky]) + "\n")
    images = ["--images", tiny_manifest.root]
    for arguments in (
        ["train", "glas-sem", "--data", path, "--out", tmp_path / "r", *SETTINGS, *images],
        ["evaluate", tiny_run, "--data", path, *images],
        ["benchmark", path, "--out", tmp_path / "b", *images],
    ):
        assert "patient p1 has images in the splits" in refused(run(*arguments))
    assert not (tmp_path / "r").exists()
    checked = run("data", "check", path, *images)
    assert checked.returncode == 2
    assert "problem: patient p1" in checked.stdout


def test_training_says_that_validation_lacks_a_class(tiny_manifest, table, tmp_path):
    lines = table.read_text().splitlines()
    kept = [line for line in lines if ",valid," not in line or ",benign," in line]
    (tmp_path / "m.csv").write_text("\n".join(kept) + "\n")
    options = ["--images", tiny_manifest.root, *SETTINGS, "--set", "train.epochs=1"]
    result = run("train", "glas-sem", "--data", tmp_path / "m.csv", "--out", tmp_path / "r", *options)
    assert result.returncode == 0, result.stderr
    assert "the valid split has no image of class malignant" in result.stderr
    assert (tmp_path / "r" / "best").exists()
