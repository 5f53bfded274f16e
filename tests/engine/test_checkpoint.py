"""Saved models: self-contained, checked by hash and format, written atomically."""

import hashlib
import json
import pickle
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml

import histolumen
from histolumen.config import load_config
from histolumen.engine.checkpoint import find_model, load_model, load_state, model_digest, save_model
from histolumen.engine.resume import check_folder
from histolumen.engine.train import train
from histolumen.errors import DiskError, HistolumenError, RunError
from tiny import SMALL


@pytest.fixture
def model_folder(tiny_run, tmp_path):
    """A copy of best/ alone, as on another machine."""
    return shutil.copytree(tiny_run / "best", tmp_path / "model")


def edit(folder, **changes):
    """Change a card as if it were one of an earlier version, which had no identity."""
    path = folder / "model.json"
    content = json.loads(path.read_text()) | changes
    content.pop("identity", None)
    path.write_text(json.dumps(content))


def tamper(folder, *keys, value):
    """Change one value of a card, or remove it, and leave its identity as it is."""
    path = folder / "model.json"
    content = json.loads(path.read_text())
    block = content
    for key in keys[:-1]:
        block = block[key]
    if value is None:
        del block[keys[-1]]
    else:
        block[keys[-1]] = value
    path.write_text(json.dumps(content))


def test_best_alone_is_a_complete_model(tiny_run, model_folder):
    image = np.random.default_rng(0).integers(0, 255, (50, 70, 3), dtype=np.uint8)
    here, there = (histolumen.load(folder).predict(image) for folder in (tiny_run, model_folder))
    assert np.array_equal(here.soft_mask, there.soft_mask)
    assert here.probabilities == there.probabilities


def test_saving_and_loading_keeps_every_tensor(model_folder, tmp_path):
    method, card = load_model(model_folder)
    save_model(tmp_path / "again", method, card)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (model_folder / "model.safetensors").read_bytes()


def test_a_model_stores_its_resolution(model_folder, tmp_path):
    method, card = load_model(model_folder)
    assert card.mpp == pytest.approx(0.62)  # 64-pixel images at a short side of 64
    save_model(tmp_path / "again", method, replace(card, mpp=0.75))
    assert json.loads((tmp_path / "again" / "model.json").read_text())["preprocessing"]["mpp"] == 0.75
    assert histolumen.load(tmp_path / "again").mpp == 0.75
    save_model(tmp_path / "unknown", method, replace(card, mpp=None))
    assert histolumen.load(tmp_path / "unknown").mpp is None


def test_an_older_model_without_resolution_loads(model_folder):
    content = json.loads((model_folder / "model.json").read_text())
    del content["preprocessing"]["mpp"], content["config"]["images"]["mpp"]
    edit(model_folder, preprocessing=content["preprocessing"], config=content["config"])
    assert histolumen.load(model_folder).mpp is None


def test_another_format_is_refused(model_folder):
    edit(model_folder, format=99)
    with pytest.raises(RunError, match="written in format 99, this version reads format 1"):
        load_model(model_folder)


def test_damaged_weights_are_refused(model_folder):
    path = model_folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match="damaged"):
        load_model(model_folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
def test_a_damaged_card_is_refused(model_folder, text):
    (model_folder / "model.json").write_text(text)
    with pytest.raises(RunError, match=r"model\.json"):
        load_model(model_folder)


def test_missing_weights_are_refused(model_folder):
    (model_folder / "model.safetensors").unlink()
    with pytest.raises(RunError, match="copy the whole folder"):
        load_model(model_folder)


def test_weights_of_another_recipe_are_refused(model_folder):
    content = json.loads((model_folder / "model.json").read_text())
    content["config"]["method"]["modalities"] = 3
    edit(model_folder, config=content["config"])
    with pytest.raises(RunError, match="does not fit"):
        load_model(model_folder)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["classes"], ["malignant", "benign"]),
        (["config", "images", "short_side"], 128),
        (["config", "images", "negative_class"], "benign"),
        (["config", "method", "sigma"], 0.5),
        (["preprocessing", "mpp"], 0.25),
        (["epoch"], 99),
    ],
)
def test_a_card_with_other_labels_or_settings_is_refused(model_folder, keys, value):
    """Swapped classes would give every image the wrong label."""
    tamper(model_folder, *keys, value=value)
    with pytest.raises(RunError, match=r"model\.json: was changed after training"):
        load_model(model_folder)
    with pytest.raises(RunError, match="was changed"):
        model_digest(model_folder)


def test_a_card_is_not_changed_by_its_layout(model_folder):
    path = model_folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    load_model(model_folder)


def test_the_identity_covers_weights_labels_and_settings(tiny_run, model_folder, tmp_path):
    method, card = load_model(model_folder)
    assert histolumen.load(tiny_run).identity == card.identity == model_digest(model_folder)
    identities = {card.identity}
    for number, changed in enumerate(
        [replace(card, classes=["x", "y"]), replace(card, mpp=9.0), replace(card, epoch=7)], start=1
    ):
        save_model(tmp_path / str(number), method, changed)
        identities.add(model_digest(tmp_path / str(number)))
    assert len(identities) == 4
    edit(model_folder)
    assert model_digest(model_folder) == json.loads((model_folder / "model.json").read_text())["sha256"]


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["sha256"], None, "no sha256 of the weights"),
        (["sha256"], 7, "no sha256 of the weights"),
        (["classes"], ["benign", "benign"], "classes"),
        (["classes"], ["benign"], "classes"),
        (["classes"], ["benign", 3], "classes"),
        (["classes"], ["benign", ""], "classes"),
        (["classes"], "benign", "classes"),
        (["config", "images", "short_side"], 100_000, "short_side"),
        (["config", "images", "crop"], 100_000, "crop"),
        (["preprocessing", "mpp"], float("nan"), "mpp"),
        (["preprocessing", "mpp"], -1, "mpp"),
        (["preprocessing", "mpp"], "wide", "model.json"),
        (["config", "backbone", "name"], "no_such_network", "no_such_network"),
        (["config", "method", "modalities"], 10**15, "model.json"),
        (["epoch"], "x", "model.json"),
        (["validation"], 3, "model.json"),
    ],
)
def test_an_impossible_card_of_an_earlier_version_is_refused(model_folder, keys, value, message):
    edit(model_folder)
    tamper(model_folder, *keys, value=value)
    with pytest.raises(HistolumenError, match=message):
        load_model(model_folder)


def test_folders_without_a_model(tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        find_model(tmp_path / "absent")
    with pytest.raises(RunError, match="no model here"):
        find_model(tmp_path)


def test_a_training_state_contains_no_code(tiny_run):
    assert set(torch.load(tiny_run / "last" / "state.pt", weights_only=True)) >= {"optimizer", "random", "epochs"}


def test_a_damaged_state_is_refused(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run / "last", tmp_path / "last")
    (folder / "state.pt").write_bytes(b"nonsense")
    with pytest.raises(RunError, match="damaged; start a new run"):
        load_state(folder)


class Harmful:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize("content", [pickle.dumps({"epochs": 3}), pickle.dumps(Harmful()), pickle.dumps([1, 2])])
def test_a_pickle_is_not_executed_and_named(tiny_run, tmp_path, content, capsys):
    folder = shutil.copytree(tiny_run / "last", tmp_path / "last")
    (folder / "state.pt").write_bytes(content)
    with pytest.raises(RunError, match=r"state\.pt: (a pickle|not the state)"):
        load_state(folder)
    assert "executed" not in capsys.readouterr().out


def test_a_state_without_its_parts_is_refused(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run / "last", tmp_path / "last")
    torch.save({"epochs": 3}, folder / "state.pt")
    with pytest.raises(RunError, match=r"state\.pt: not the state of a training run"):
        load_state(folder)


def test_a_full_disk_keeps_the_old_model(model_folder, monkeypatch):
    import errno
    from pathlib import Path

    method, card = load_model(model_folder)
    before = (model_folder / "model.json").read_bytes()

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DiskError, match="the disk is full"):
        save_model(model_folder, method, card)
    monkeypatch.undo()
    assert (model_folder / "model.json").read_bytes() == before
    load_model(model_folder)
    assert [p.name for p in model_folder.parent.iterdir()] == [model_folder.name]


def test_a_model_of_before_the_negative_class_was_the_images_predicts_the_same(tiny_manifest, tiny_config, tmp_path):
    """Earlier versions wrote `method.negative_class`, and its index beside the weights."""
    config = tiny_config("method.negative_evidence=1", "images.negative_class=benign", "train.epochs=1")
    train(config, tiny_manifest, tmp_path / "run")
    new, old = tmp_path / "run" / "best", tmp_path / "old"
    shutil.copytree(new, old)
    weights = safetensors.torch.save(
        {**safetensors.torch.load_file(new / "model.safetensors"), "negative_class": torch.tensor(0)}
    )
    (old / "model.safetensors").write_bytes(weights)
    content = json.loads((old / "model.json").read_text())["config"]
    content["method"]["negative_class"] = content["images"].pop("negative_class")
    edit(old, config=content, sha256=hashlib.sha256(weights).hexdigest())
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    before, now = (histolumen.load(folder).predict(image) for folder in (old, new))
    assert np.array_equal(before.soft_mask, now.soft_mask)
    assert before.probabilities == now.probabilities
    assert histolumen.load(old).method.negative_class == 0


def test_a_rival_of_before_there_were_negative_classes_keeps_its_masks(tiny_manifest, tiny_config, tmp_path):
    folder = tmp_path / "run"
    train(load_config("glas-cam-avg", [*SMALL, "train.epochs=1"]), tiny_manifest, folder)
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    now = histolumen.load(folder).predict(image)
    content = json.loads((folder / "best/model.json").read_text())["config"]
    del content["images"]["negative_class"]
    edit(folder / "best", config=content)
    before = histolumen.load(folder).predict(image)
    assert np.array_equal(before.soft_mask, now.soft_mask)
    assert before.soft_mask.min() == 0  # the predicted class's map, stretched
    assert before.soft_mask.max() > 0.99


def test_an_earlier_run_of_erase_predicts_as_it_did_and_is_not_continued_with_one_pass(tiny_manifest, tmp_path):
    run, image = tmp_path / "run", np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    config = load_config("glas-erase", [*SMALL, "train.epochs=1", "method.test_rounds=3"])
    train(config, tiny_manifest, run)
    expected = histolumen.load(run).predict(image).soft_mask
    content = json.loads((run / "best" / "model.json").read_text())
    del content["config"]["method"]["test_rounds"]  # as an earlier version wrote it
    edit(run / "best", config=content["config"])
    (run / "config.yaml").write_text(yaml.safe_dump(content["config"]))
    assert np.array_equal(histolumen.load(run).predict(image).soft_mask, expected)
    check_folder(run, config, tiny_manifest, resume=True)
    with pytest.raises(RunError, match=r"method\.test_rounds = 3, not 1"):
        check_folder(run, load_config("glas-erase", [*SMALL, "train.epochs=1"]), tiny_manifest, resume=True)


def test_a_model_is_readable_at_every_moment_while_it_is_replaced(tmp_path, tiny_run):
    """A reader that opens the card of one version and the weights of the next must try again."""
    versions = []
    for number in (1, 2):
        method, card = load_model(tiny_run / "best")
        for parameter in method.parameters():
            parameter.data.fill_(number)
        versions.append((method, replace(card, epoch=number)))
    save_model(tmp_path / "last", *versions[0])
    ended = threading.Event()

    def write() -> None:
        for number in range(60):
            save_model(tmp_path / "last", *versions[number % 2])
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    try:
        while not ended.is_set():
            method, card = load_model(find_model(tmp_path / "last"))
            values = {parameter.unique().item() for parameter in method.parameters() if parameter.numel()}
            assert values == {card.epoch}
            seen.add(card.epoch)
    finally:
        writer.join()
    assert seen == {1, 2}
