"""`predict` into a used folder: goes on with the same model, refuses another one, and never mixes pictures."""

import csv
import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from histolumen.atomic import new_file
from histolumen.engine.predict_files import find_images, predict_files
from histolumen.engine.prediction import Prediction
from histolumen.errors import DiskError, ImageError, RunError
from stand_in import LeftHalf, draw, listed


class Counting(LeftHalf):
    """Counts the images that are predicted."""

    def __init__(self, identity: str = "first"):
        self.identity, self.seen = identity, []

    def predict(self, image):
        self.seen.append(Path(image).name)
        return super().predict(image)


def predict(model, folder, out, **options):
    return predict_files(model, find_images([folder], out), out, **options)


@pytest.fixture
def images(tmp_path):
    for number, name in enumerate(("a", "b", "c")):
        draw(tmp_path / "in" / f"{name}.png", 50 + number)
    return tmp_path / "in"


def test_the_same_call_again_predicts_nothing_and_keeps_the_table(images, tmp_path):
    first = predict(Counting(), images, tmp_path / "out")
    table = (tmp_path / "out" / "predictions.csv").read_bytes()
    again = Counting()
    report = predict(again, images, tmp_path / "out")
    assert again.seen == []
    assert report.records == first.records
    assert (tmp_path / "out" / "predictions.csv").read_bytes() == table


def test_new_changed_and_lost_images_are_predicted(images, tmp_path):
    out = tmp_path / "out"
    predict(Counting(), images, out)
    draw(images / "b.png", 200)
    draw(images / "d.png", 90)
    (out / "masks" / "c.png").unlink()
    again = Counting()
    predict(again, images, out)
    assert again.seen == ["b.png", "c.png", "d.png"]
    rows = {Path(row["image"]).name: row for row in listed(out)}
    assert list(rows) == ["a.png", "b.png", "c.png", "d.png"]
    assert rows["b.png"]["p_malignant"] == str(round(200 / 255, 6))
    assert (out / "masks" / "c.png").is_file()


def test_another_model_is_refused_and_changes_nothing(images, tmp_path):
    out = tmp_path / "out"
    predict(Counting(), images, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"out: holds predictions of another model.*choose another --out"):
        predict(Counting("second"), images, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["masks/a.png", "overlays/a.png", "predictions.csv", "predictions.json"])
def test_results_of_unknown_origin_are_not_mixed(images, tmp_path, name):
    draw(tmp_path / "out" / "overlays" / "old.png")
    (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / name).write_text("{}")
    with pytest.raises(RunError, match="out: holds predictions of another model"):
        predict(Counting(), images, tmp_path / "out")


def test_other_files_in_the_folder_are_no_obstacle(images, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    assert len(predict(Counting(), images, tmp_path / "out").records) == 3


def test_images_of_another_folder_are_added_under_other_names(images, tmp_path):
    out = tmp_path / "out"
    draw(tmp_path / "more" / "a.png", 250)
    predict(Counting(), images, out)
    mask = (out / "masks" / "a.png").read_bytes()
    predict(Counting(), tmp_path / "more", out)
    rows = listed(out)
    assert len(rows) == 4
    assert len({row["mask"] for row in rows}) == 4
    assert (out / "masks" / "a.png").read_bytes() == mask


def test_polygons_are_added_to_earlier_predictions(images, tmp_path):
    predict(Counting(), images, tmp_path / "out")
    report = predict(Counting(), images, tmp_path / "out", geojson=True)
    assert all((tmp_path / "out" / record["geojson"]).is_file() for record in report.records)


def test_another_threshold_is_refused_and_changes_nothing(images, tmp_path):
    out = tmp_path / "out"
    predict(Counting(), images, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"the same model with threshold 0.5, not 0.4; choose another --out"):
        predict(Counting(), images, out, threshold=0.4)
    with pytest.raises(RunError, match=r"the same model with caption false, not true"):
        predict(Counting(), images, out, caption=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_pictures_are_added_to_earlier_predictions_and_none_is_lost(images, tmp_path):
    out = tmp_path / "out"
    predict(Counting(), images, out, overlay=False, geojson=True)
    again = Counting()
    predict(again, images, out, heatmap=True)
    assert again.seen == ["a.png", "b.png", "c.png"]
    again = Counting()
    predict(again, images, out, overlay=False)
    assert again.seen == []
    for row in listed(out):
        for kind in ("soft_mask", "mask", "overlay", "heatmap", "geojson"):
            assert (out / row[kind]).is_file()


def test_a_changed_image_leaves_no_picture_of_its_former_self(images, tmp_path):
    """Also the kinds that this call does not ask for are drawn again."""
    out = tmp_path / "out"
    predict(Counting(), images, out)
    before = (out / "overlays" / "b.png").read_bytes()
    draw(images / "b.png", 200)
    predict(Counting(), images, out, overlay=False)
    assert (out / "overlays" / "b.png").read_bytes() != before


def test_a_folder_that_names_no_threshold_is_of_an_earlier_version(images, tmp_path):
    out = tmp_path / "out"
    predict(Counting(), images, out)
    content = json.loads((out / "predictions.json").read_text())
    del content["threshold"]
    (out / "predictions.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match="an earlier version"):
        predict(Counting(), images, out)


def test_a_killed_call_goes_on(images, tmp_path, monkeypatch):
    """The folder names its model from the start, so that what a kill leaves is recognised."""

    class Killed(Counting):
        def predict(self, image):
            if len(self.seen) == 1:
                os._exit(9)
            return super().predict(image)

    child = os.fork()
    if child == 0:
        try:
            predict(Killed(), images, tmp_path / "out")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(predict(Counting(), images, tmp_path / "out").records) == 3


# --- one bad file never costs the others


def test_very_long_names_are_shortened_and_stay_different(tmp_path):
    names = ["x" * 248 + f"{number}.png" for number in (1, 2)]
    for name in names:
        draw(tmp_path / "in" / name)
    report = predict(LeftHalf(), tmp_path / "in", tmp_path / "out", geojson=True)
    assert report.failures == []
    assert len({record["mask"] for record in report.records}) == 2
    for record in report.records:
        for kind in ("mask", "soft_mask", "overlay", "geojson"):
            assert (tmp_path / "out" / record[kind]).is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such file names")
def test_a_name_that_is_not_unicode_has_polygons_too(tmp_path):
    draw(tmp_path / "in" / os.fsdecode(b"caf\xe9.png"))
    draw(tmp_path / "in" / "a.png")
    report = predict(LeftHalf(), tmp_path / "in", tmp_path / "out", geojson=True)
    assert report.failures == []
    for record in report.records:
        record["geojson"].encode()
        json.loads((tmp_path / "out" / record["geojson"]).read_text())


@pytest.mark.parametrize(
    "failure", [RuntimeError("not enough memory"), MemoryError(), KeyError("x"), ImageError("b: bad")]
)
@pytest.mark.parametrize("step", ["predict", "save", "geojson"])
def test_whatever_step_fails_the_others_are_done(images, tmp_path, monkeypatch, failure, step):
    model = LeftHalf()
    if step == "predict":
        real = model.predict

        def predict_or_fail(image):
            if image.name == "b.png":
                raise failure
            return real(image)

        model.predict = predict_or_fail
    else:
        name = {"save": "save", "geojson": "regions"}[step]
        original = getattr(Prediction, name)

        def fails(self, *arguments, **options):
            if self.image.mean() == 51:  # b.png
                raise failure
            return original(self, *arguments, **options)

        monkeypatch.setattr(Prediction, name, fails)
    report = predict(model, images, tmp_path / "out", geojson=True)
    assert [Path(record["image"]).name for record in report.records] == ["a.png", "c.png"]
    assert len(report.failures) == 1
    assert "b" in report.failures[0]


def test_a_full_disk_stops_the_batch_with_its_sentence(images, tmp_path, monkeypatch):
    """Every further image would fail too, after minutes of computing."""

    def full(self, *arguments, **options):
        with new_file(tmp_path / "out" / "masks" / "b.png"):
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Prediction, "save", full)
    with pytest.raises(DiskError, match="disk is full"):
        predict(LeftHalf(), images, tmp_path / "out")


def test_a_folder_that_cannot_be_read_is_a_failure(images, tmp_path, monkeypatch):
    (images / "private").mkdir()
    real = os.scandir

    def scandir(path="."):
        if str(path).endswith("private"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = predict(LeftHalf(), images, tmp_path / "out")
    assert len(report.records) == 3
    assert report.failures == [f"{images / 'private'}: cannot be read (Permission denied)"]


def test_the_table_has_a_row_for_every_picture(images, tmp_path):
    out = tmp_path / "out"
    predict(LeftHalf(), images, out)
    with (out / "predictions.csv").open(newline="") as handle:
        masks = {row["mask"] for row in csv.DictReader(handle)}
    assert masks == {f"masks/{path.name}" for path in (out / "masks").iterdir()}
    assert np.asarray(Image.open(out / "masks" / "a.png")).any()
