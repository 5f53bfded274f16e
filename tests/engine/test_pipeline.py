"""Images are prepared and written in the background, but everything is remembered in their order."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import histolumen
from histolumen.engine import memory, pipeline
from histolumen.engine.model import Model
from histolumen.engine.pipeline import InOrder, Predictions
from histolumen.engine.predict_files import Input, find_images, predict_files
from histolumen.engine.prediction import Prediction
from histolumen.errors import ImageError
from stand_in import LeftHalf, draw, listed
from tiny import Recorder


@pytest.fixture(scope="module")
def model(tiny_run):
    return histolumen.load(tiny_run)


@pytest.fixture
def inputs(tiny_manifest, tmp_path):
    files = [Input(tiny_manifest.image_path(row), f"{k}") for k, row in enumerate(tiny_manifest.rows[:5])]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    return [*files[:2], Input(broken, "broken"), *files[2:]]


def test_stages_give_the_same_prediction_as_one_call(model, inputs):
    prepared = model.prepare(inputs[0].path)
    staged, whole = model.finish(prepared, model.run(prepared)), model.predict(inputs[0].path)
    assert np.array_equal(staged.soft_mask, whole.soft_mask)
    assert (staged.probabilities, staged.name) == (whole.probabilities, whole.name)


def test_a_real_model_predicts_a_folder_in_order_whatever_thread_is_faster(model, inputs, tmp_path, monkeypatch):
    real, threads = Prediction.save, set()

    def slow_at_first(self, *arguments, **options):
        threads.add(threading.current_thread().name)
        time.sleep(0.2 if len(list((tmp_path / "out").iterdir())) < 3 else 0)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Prediction, "save", slow_at_first)
    report = predict_files(model, inputs, tmp_path / "out")
    good = [item for item in inputs if item.name != "broken"]
    assert [record["image"] for record in report.records] == [str(item.path) for item in good]
    assert [record["mask"] for record in report.records] == [f"masks/{item.name}.png" for item in good]
    assert len(report.failures) == 1
    assert str(inputs[2].path) in report.failures[0]
    assert len(listed(tmp_path / "out")) == 5
    assert threads == {"write_0"}
    for item, record in zip(good, report.records, strict=True):
        assert record["probability"] == round(model.predict(item.path).probability, 6)


def test_files_are_prepared_ahead_but_only_a_few(model, inputs, monkeypatch):
    seen = []

    def prepare(self, path):
        seen.append(path)
        return path

    monkeypatch.setattr(Model, "prepare", prepare)
    monkeypatch.setattr(Model, "run", lambda self, prepared: prepared)
    paths = [Path(f"{k}.png") for k in range(20)]
    with Predictions(model, paths) as predictions:
        predictions.of(paths[0])
        time.sleep(0.1)
        assert 1 <= len(seen) <= 1 + pipeline._AHEAD
        predictions.of(paths[10])  # those in between were done before
        predictions.of(Path("new.png"))  # was not announced
        predictions.of(paths[11])
    assert {paths[0], paths[10], paths[11], Path("new.png")} <= set(seen)


def test_a_file_given_twice_is_predicted_once(tmp_path):
    draw(tmp_path / "in" / "a.png")
    model = LeftHalf()
    calls = []
    real = model.predict
    model.predict = lambda path: calls.append(path) or real(path)
    report = predict_files(model, find_images([tmp_path / "in", tmp_path / "in" / "a.png"]), tmp_path / "out")
    assert len(calls) == 1
    assert report.records[0] == report.records[1]
    assert len(listed(tmp_path / "out")) == 1


def test_writing_that_is_under_way_is_finished_after_an_interruption(tmp_path, monkeypatch):
    for name in ("a", "b", "c", "d"):
        draw(tmp_path / "in" / f"{name}.png")
    real = Prediction.save

    def slow(self, *arguments, **options):
        time.sleep(0.2)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Prediction, "save", slow)
    with pytest.raises(KeyboardInterrupt):
        predict_files(LeftHalf(), find_images([tmp_path / "in"]), tmp_path / "out", progress=Recorder(stop_after=3))
    assert [record["mask"] for record in listed(tmp_path / "out")] == [f"masks/{name}.png" for name in "abc"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("write", "prepare"))]


def test_outcomes_are_settled_in_order_and_waiting_is_bounded():
    settled, release = [], threading.Event()
    with InOrder(lambda key, outcome: settled.append((key, outcome()))) as results:
        results.add("a", lambda: release.wait(5) and "slow")
        results.add_outcome("b", "known")
        assert settled == []
        assert results.waits_for(lambda key: key == "b")
        release.set()
        results.add("c", lambda: "last")
    assert settled == [("a", "slow"), ("b", "known"), ("c", "last")]


def test_an_error_in_the_background_is_raised_where_it_is_settled():
    def settle(key, outcome):
        with pytest.raises(ImageError, match=key):
            outcome()

    def fail():
        raise ImageError("a")

    with InOrder(settle) as results:
        results.add("a", fail)
        results.add_error("b", ImageError("b"))


def test_memory_is_returned_every_few_images_and_at_the_end(model, inputs, monkeypatch):
    returned = []
    monkeypatch.setattr(memory, "_RETURN_EVERY", 2)
    for module in (memory, pipeline):
        monkeypatch.setattr(module, "return_freed_memory", lambda: returned.append(len(run)))
    run = []
    monkeypatch.setattr(Model, "run", lambda self, prepared: run.append(prepared))
    paths = [item.path for item in inputs if item.name != "broken"]
    with Predictions(model, paths) as predictions:
        for path in paths:
            predictions.of(path)
    assert returned == [2, 4, 5]
