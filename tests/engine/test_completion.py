"""The end of training: the model knows its training images and its temperature; earlier models say that they do not."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import histolumen
from commands import histolumen as run
from histolumen.calibration import with_temperature
from histolumen.data.image import read_image
from histolumen.data.manifest import Row
from histolumen.engine import completion
from histolumen.engine.checkpoint import is_complete, load_model, save_model
from histolumen.engine.evaluate import evaluate
from histolumen.engine.predict_files import find_images, predict_files
from histolumen.engine.train import train
from histolumen.errors import RunError
from tiny import Recorder


@pytest.fixture
def earlier_run(tiny_run, tmp_path):
    """The run as an earlier version would have left it."""
    folder = shutil.copytree(tiny_run, tmp_path / "earlier")
    method, card = load_model(folder / "best")
    save_model(folder / "best", method, replace(card, temperature=None, reference=None))
    return folder


def test_a_finished_run_is_complete_and_an_unfinished_epoch_is_not(tiny_run):
    model = histolumen.load(tiny_run)
    assert model.reference is not None
    assert model.reference.size == (64, 64)
    assert model.temperature != 1
    assert is_complete(tiny_run / "best")
    assert not is_complete(tiny_run / "last")


def test_probabilities_are_calibrated_and_the_class_stays(tiny_run, earlier_run, tiny_manifest):
    model, raw = histolumen.load(tiny_run), histolumen.load(earlier_run)
    for path in tiny_manifest.image_paths("test"):
        before, after = (np.array(list(m.predict(path).probabilities.values())) for m in (raw, model))
        assert after == pytest.approx(with_temperature(before, model.temperature))
        assert before.argmax() == after.argmax()


def test_an_earlier_model_works_and_says_that_it_does_not_know(earlier_run, tiny_manifest, tmp_path):
    path = tiny_manifest.image_paths("test")[0]
    prediction = histolumen.load(earlier_run).predict(path)
    assert (prediction.unlike_training, prediction.warnings) == (None, ())
    result = run("predict", str(earlier_run), str(path), "--out", str(tmp_path / "out"))
    assert result.returncode == 0
    assert "not known whether this is like the training images" in result.stderr


def test_resuming_completes_an_earlier_or_killed_run_as_if_it_had_never_stopped(
    tiny_run, earlier_run, tiny_manifest, tiny_config
):
    reporting = Recorder()
    train(tiny_config(), tiny_manifest, earlier_run, resume=True, progress=reporting)
    for name in ("model.json", "model.safetensors", "reference.safetensors"):
        assert (earlier_run / "best" / name).read_bytes() == (tiny_run / "best" / name).read_bytes()
    splits = [len(tiny_manifest.split(name).rows) for name in ("train", "valid")]
    counted = [item for item in reporting.seen if isinstance(item, Row)]
    assert len(counted) == sum(splits)  # every image once


def test_masks_labels_and_other_splits_do_not_change_what_is_known_of_the_training_images(tiny_run, tiny_manifest):
    method, card = load_model(tiny_run / "best")
    training = tiny_manifest.split("train")
    blind = replace(training, rows=tuple(replace(row, mask="", label="?") for row in training.rows))
    both = [completion.describe_training(method, card, rows, torch.device("cpu")) for rows in (training, blind)]
    first, second = (each.tensors() for each in both if each is not None)
    assert all((first[name] == second[name]).all() for name in first)


def test_a_changed_reference_is_refused(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run / "best", tmp_path / "model")
    data = bytearray((folder / "reference.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "reference.safetensors").write_bytes(data)
    with pytest.raises(RunError, match=r"reference\.safetensors: does not match the SHA-256"):
        load_model(folder)
    (folder / "reference.safetensors").unlink()
    with pytest.raises(RunError, match=r"reference\.safetensors: cannot be read"):
        load_model(folder)


def test_the_table_and_the_evaluation_say_which_images_are_unlike(tiny_run, tiny_manifest, tmp_path):
    model = histolumen.load(tiny_run)
    good = read_image(tiny_manifest.image_paths("test")[0])
    odd = model.predict(255 - good)
    assert odd.unlike_training is not None
    assert odd.unlike_training > 1
    assert odd.warnings[0].startswith("unlike the training images")
    assert "unlike the training images" in repr(odd)
    assert "⚠ unlike" in odd._repr_html_()
    assert all(region.unlike == odd.unlike_training for region in odd.regions())

    (tmp_path / "in").mkdir()
    Image.fromarray(255 - good).save(tmp_path / "in" / "odd.png")
    predict_files(model, find_images([tmp_path / "in"]), tmp_path / "out", geojson=True)
    [record] = json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]
    assert record["unlike_training"] == pytest.approx(odd.unlike_training, abs=0.001)
    assert record["warnings"] == "; ".join(odd.warnings)
    assert "warnings" in (tmp_path / "out" / "predictions.csv").read_text().splitlines()[0].split(",")

    evaluation = evaluate(model, tiny_manifest, "test")
    assert evaluation.as_dict()["images_with_warnings"] == sum(
        bool(model.predict(path).warnings) for path in tiny_manifest.image_paths("test")
    )


def test_an_image_much_larger_than_the_training_images_is_judged_by_its_fields(tiny_run, tiny_manifest):
    model = histolumen.load(tiny_run)
    model.config = model.config.model_copy(
        update={"images": model.config.images.model_copy(update={"short_side": None})}
    )
    good = read_image(tiny_manifest.image_paths("train")[0])
    prediction = model.predict(np.tile(255 - good, (3, 4, 1)))
    assert prediction.warnings[0].startswith("100 % of the tissue is unlike the training images")


def test_a_slide_and_its_regions_are_judged(tiny_run, gland_slide, tmp_path):
    model = histolumen.load(tiny_run)
    settings = histolumen.SlideSettings(tile=256, overlap=64, model_mpp=0.5, min_area=0)
    prediction = model.predict_slide(gland_slide, settings)
    assert prediction.fields is not None
    assert prediction.unlike_training == pytest.approx(np.median(prediction.fields.unlike))
    record = prediction.record()
    assert record["unlike_share"] == pytest.approx((prediction.fields.unlike > 1).mean(), abs=1e-4)
    assert record["unlike_training"] == pytest.approx(prediction.unlike_training, abs=0.001)
    assert record["warnings"] == "; ".join(prediction.warnings)
    measured = [feature["properties"]["measurements"] for feature in prediction.to_geojson()["features"]]
    assert measured
    assert all(each["Unlike training"] > 0 for each in measured)
    model.reference = None
    assert model.predict_slide(gland_slide, settings).record()["unlike_training"] is None
