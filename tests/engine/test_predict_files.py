"""Prediction into a folder: readable images are predicted, all others are listed."""

import json
import os
import sys

import numpy as np
import pytest
from PIL import Image

from histolumen.engine.predict_files import Input, find_images, predict_files
from histolumen.errors import ConfigError, DataError
from stand_in import LeftHalf, draw, listed
from tiny import Recorder

# --- finding images


def test_folders_are_searched_recursively_and_files_taken_as_given(tmp_path):
    for name in ("in/b.png", "in/deep/a.JPG", "in/notes.txt", "single.tif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_images([tmp_path / "in", tmp_path / "single.tif"]) == [
        Input(tmp_path / "in" / "b.png", "b"),
        Input(tmp_path / "in" / "deep" / "a.JPG", "deep/a"),
        Input(tmp_path / "single.tif", "single"),
    ]


def test_names_of_results_are_unique(tmp_path):
    for name in ("1/x.png", "1/x.jpg", "1/x_png.png", "2/x.png", "3/x.png", "3/x.png.tif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_images([tmp_path / "1", tmp_path / "2", tmp_path / "3", tmp_path / "1"])
    assert len(found) == 9
    assert len({item.name for item in found}) == 9


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="contains no images"):
        find_images([tmp_path])


@pytest.mark.parametrize("suffix", ["svs", "ndpi", "MRXS", "scn"])
def test_a_whole_slide_is_left_out_with_the_command_for_it(tmp_path, suffix):
    slide, image = tmp_path / "in" / f"case.{suffix}", draw(tmp_path / "in" / "a.png")
    slide.write_bytes(b"slide")
    for inputs in ([slide, image], [tmp_path / "in"]):
        report = predict_files(LeftHalf(), find_images(inputs), tmp_path / "out")
        assert len(report.records) == 1
        assert report.failures == [
            f"{slide}: a whole slide; predict it with `histolumen slide RUN {slide} --out FOLDER`"
        ]


def test_a_folder_of_slides_points_to_the_command_for_slides(tmp_path):
    (tmp_path / "case.svs").touch()
    with pytest.raises(DataError, match=f"whole slides and no images.*histolumen slide RUN {tmp_path} --out"):
        find_images([tmp_path])


# --- predicting


def test_every_image_has_masks_overlay_and_a_row(tmp_path):
    path = draw(tmp_path / "in" / "a.png")
    report = predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out")
    assert report.failures == []
    assert report.records == [
        {
            "image": str(path),
            "prediction": "benign",
            "probability": 0.8,
            "p_benign": 0.8,
            "p_malignant": 0.2,
            "foreground_share": 0.5,
            "tissue_share": 1.0,
            "unlike_training": None,
            "warnings": None,
            "soft_mask": "soft_masks/a.png",
            "mask": "masks/a.png",
            "overlay": "overlays/a.png",
        }
    ]
    assert listed(tmp_path / "out") == [
        {key: "" if value is None else str(value) for key, value in report.records[0].items()}
    ]
    content = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert (content["model"], content["images"], content["failures"]) == ("left half", report.records, [])
    soft = np.asarray(Image.open(tmp_path / "out" / "soft_masks" / "a.png")) / 65535
    mask = np.asarray(Image.open(tmp_path / "out" / "masks" / "a.png"))
    assert soft[0] == pytest.approx(np.linspace(1, 0, 20), abs=1e-4)
    assert (mask == np.where(np.arange(20) < 10, 255, 0)).all()
    overlay = Image.open(tmp_path / "out" / "overlays" / "a.png")
    assert overlay.size == (20, 12)  # of the image


def test_threshold_and_pictures_are_options(tmp_path):
    draw(tmp_path / "in" / "a.png")
    out = tmp_path / "out"
    options = {"threshold": 0.75, "overlay": False, "heatmap": True}
    report = predict_files(LeftHalf(), find_images([tmp_path / "in"]), out, **options)
    record = report.records[0]
    assert "overlay" not in record
    assert not (out / "overlays").exists()
    assert record["foreground_share"] == 0.25
    assert (np.asarray(Image.open(out / record["mask"])) == np.where(np.arange(20) < 5, 255, 0)).all()
    heat = np.asarray(Image.open(out / record["heatmap"]))
    assert heat[0, 0].tolist() == [0xFD, 0xE7, 0x25]  # 1: yellow
    assert heat[11, 19].tolist() == [0x44, 0x01, 0x54]  # 0: violet


def test_a_caption_makes_the_overlay_taller(tmp_path):
    draw(tmp_path / "in" / "a.png")
    predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out", caption=True)
    overlay = Image.open(tmp_path / "out" / "overlays" / "a.png")
    assert overlay.width == 20
    assert overlay.height > 12


@pytest.mark.parametrize("threshold", [0, 1, -0.1, 50, float("nan")])
def test_a_threshold_outside_0_and_1_is_refused_before_anything_is_written(tmp_path, threshold):
    draw(tmp_path / "in" / "a.png")
    with pytest.raises(ConfigError, match="give a number between 0 and 1"):
        predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out", threshold=threshold)
    assert not (tmp_path / "out").exists()


def test_results_keep_the_subfolders_of_their_images(tmp_path):
    draw(tmp_path / "in" / "patient 1" / "a.png")
    draw(tmp_path / "in" / "patient 2" / "a.png", 240)
    report = predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out")
    assert [record["prediction"] for record in report.records] == ["benign", "malignant"]
    for record in report.records:
        assert (tmp_path / "out" / record["mask"]).is_file()
    assert report.records[1]["mask"] == "masks/patient 2/a.png"


def test_unreadable_images_are_listed_and_the_others_predicted(tmp_path):
    good = [draw(tmp_path / "in" / name) for name in ("a.png", "e.png")]
    broken, narrow = tmp_path / "in" / "b.png", draw(tmp_path / "in" / "c.png", size=(1, 40))
    broken.write_bytes(good[0].read_bytes()[:40])
    missing = tmp_path / "none.png"
    report = predict_files(LeftHalf(), find_images([tmp_path / "in", missing]), tmp_path / "out")
    assert [record["image"] for record in report.records] == [str(path) for path in good]
    assert [failure.split(":")[0] for failure in report.failures] == [str(path) for path in (broken, narrow, missing)]
    assert report.failures[1].startswith(f"{narrow}: 40 x 1 pixels is too narrow")
    assert json.loads((tmp_path / "out" / "predictions.json").read_text())["failures"] == report.failures


def test_without_readable_images_no_table_is_written(tmp_path):
    report = predict_files(LeftHalf(), find_images([tmp_path / "none.png"]), tmp_path / "out")
    assert (len(report.records), len(report.failures)) == (0, 1)
    assert not (tmp_path / "out").exists()


def test_the_table_lists_the_images_predicted_before_an_interruption(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        draw(tmp_path / "in" / name)

    with pytest.raises(KeyboardInterrupt):
        predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out", progress=Recorder(stop_after=2))
    assert [record["mask"] for record in listed(tmp_path / "out")] == ["masks/a.png", "masks/b.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such file names")
def test_a_file_name_that_is_not_unicode_does_not_prevent_the_table(tmp_path):
    """Archives of old systems contain such names; Python reads them as lone surrogates."""
    draw(tmp_path / "in" / "a.png")
    draw(tmp_path / "in" / os.fsdecode(b"caf\xe9.png"))
    predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out")
    assert [record["prediction"] for record in listed(tmp_path / "out")] == ["benign", "benign"]
    assert len(json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]) == 2


def test_an_image_of_one_pixel_is_saved_too(tmp_path):
    pixels = np.zeros((1, 1, 3), np.uint8)
    record = LeftHalf().predict(pixels).save(tmp_path, "x")
    assert record["foreground_share"] == 1
    assert Image.open(tmp_path / record["soft_mask"]).size == (1, 1)


def test_masks_hidden_files_and_earlier_results_are_no_images(tmp_path):
    for name in ("a.png", "a_mask.png", ".hidden.png", "out/overlays/a.png", "b/c.png"):
        draw(tmp_path / "in" / name)
    found = find_images([tmp_path / "in"], tmp_path / "in" / "out")
    assert [item.name for item in found] == ["a", "b/c"]
