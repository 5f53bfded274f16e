"""The report of a run: with and without masks, validation images, or a folder to write to."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from commands import histolumen
from histolumen.data.manifest import Manifest
from histolumen.engine.train import train
from histolumen.errors import RunError
from histolumen.report.html.content import Page
from histolumen.report.html.run import page_after_training, run_page
from histolumen.report.html.write import write_report
from tiny import SMALL, TINY, Recorder


def section(page: Page, title: str):
    return next(section for section in page.sections if section.title == title)


def titles(page: Page) -> list[str]:
    return [section.title for section in page.sections]


@pytest.fixture
def own_run(tiny_run, tiny_manifest, tmp_path):
    """A copy of the tiny run that a test may change."""
    shutil.copytree(tiny_run, tmp_path / "run")
    tiny_manifest.write(tmp_path / "run" / "manifest.csv")
    shutil.rmtree(tmp_path / "run" / "evaluation", ignore_errors=True)
    return tmp_path / "run"


def test_a_run_is_evaluated_once_and_shown_worst_first(own_run, tiny_manifest):
    first, again = Recorder(), Recorder()
    page = run_page(own_run, progress=first, count=2)
    valid = tiny_manifest.split("valid").rows
    assert len(first.seen) == len(valid)  # evaluation and gallery in one pass
    assert titles(page) == [
        *("Scores", "Classes", "Masks", "Gallery", "Data", "Training", "What the numbers mean", "All settings")
    ]
    gallery = section(page, "Gallery").blocks[0]
    assert gallery.layers == ["image", "heat map", "outline", "errors"]
    assert len(gallery.cards) == 2
    stored = json.loads(next((own_run / "evaluation").glob("measured-valid-*.json")).read_text())
    worst = sorted(stored["per_image"], key=lambda image: image["miou"])[:2]
    assert [card.title for card in gallery.cards] == [image["image"].split("/")[-1] for image in worst]
    same = run_page(own_run, progress=again, count=2)
    assert len(again.seen) == 2  # only the pictures of the gallery
    assert [card.title for card in section(same, "Gallery").blocks[0].cards] == [card.title for card in gallery.cards]


def test_data_and_training_are_described(own_run, tiny_manifest):
    page = run_page(own_run, split="test")
    table = section(page, "Data").blocks[0].table
    assert table.columns == ["split", "images", "benign", "malignant", "with a mask", "patients"]
    assert sum(int(row[1]) for row in table.rows) == len(tiny_manifest.rows)
    facts = section(page, "Training").blocks[0].pairs
    assert facts["Seed"] == "0"
    assert facts["Recipe"].startswith("glas-sem, ")
    assert facts["Epochs"].startswith("2 of 2")
    assert "torch" in facts["Versions"]
    assert "no masks" in facts["Learned from"]
    assert "test images" in page.summary


def test_without_masks_the_least_certain_come_first(own_run, tiny_manifest):
    bare = Manifest(tuple(replace(row, mask="") for row in tiny_manifest.rows), tiny_manifest.root)
    bare.write(own_run / "manifest.csv")
    page = run_page(own_run)
    gallery = section(page, "Gallery").blocks[0]
    assert gallery.layers == ["image", "heat map", "outline"]
    assert "least certain first" in gallery.note
    probabilities = [float(card.verdict.split()[-1]) for card in gallery.cards]
    assert probabilities == sorted(probabilities)
    assert "F1+ foreground" not in [headline.name for headline in page.headlines]


def test_a_run_without_validation_images_is_described_without_scores(own_run, tiny_manifest):
    rows = tuple(replace(row, split="train") for row in tiny_manifest.rows)
    Manifest(rows, tiny_manifest.root).write(own_run / "manifest.csv")
    page = page_after_training(own_run)
    assert page.headlines == []
    assert "Gallery" not in titles(page)
    assert "training images" in run_page(own_run).sections[-2].blocks[0].paragraphs[3]


def test_an_unreadable_image_is_listed(own_run, tiny_manifest, tmp_path):
    folder = tmp_path / "images"
    shutil.copytree(tiny_manifest.root, folder)
    (folder / tiny_manifest.split("valid").rows[0].image).write_bytes(b"no image")
    page = run_page(own_run, images=folder)
    assert "not an image" in section(page, "Left out").blocks[0].paragraphs[0]


def test_a_method_without_classes_has_no_class_charts(tiny_manifest, tiny_config, tmp_path):
    from histolumen.config import load_config

    train(load_config("glas-all-ones", [*SMALL, "train.epochs=1"]), tiny_manifest, tmp_path / "run")
    page = run_page(tmp_path / "run")
    assert "Classes" not in titles(page)
    assert section(page, "Gallery").blocks[0].cards[0].verdict == ""


def test_the_file_holds_its_pictures(own_run):
    path = write_report(own_run)
    html = path.read_text()
    assert path == own_run / "report.html"
    assert len(re.findall(r'<img src="data:image/jpeg;base64,', html)) % 4 == 0
    assert path.stat().st_size < 2_000_000


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(RunError, match="neither a run nor"):
        write_report(tmp_path)
    with pytest.raises(RunError, match="no such folder"):
        write_report(tmp_path / "absent")


def test_an_existing_file_is_kept_unless_agreed(own_run, tmp_path):
    target = tmp_path / "mine.html"
    target.write_text("mine")
    assert histolumen("report", own_run, "--out", target).returncode == 2
    assert target.read_text() == "mine"
    assert histolumen("report", own_run, "--out", target, "--overwrite").returncode == 0
    assert "histolumen report" in target.read_text()


def test_training_writes_a_report_and_never_fails_by_it(tiny_manifest, tmp_path, monkeypatch):
    from histolumen.report.html import write

    settings = [part for override in (*TINY, "train.epochs=1") for part in ("--set", override)]
    arguments = ["train", "glas-sem", "--data", tiny_manifest.root / "manifest.csv", *settings, "--out"]
    result = histolumen(*arguments, tmp_path / "a")
    assert result.returncode == 0, result.stderr
    assert f"report: {tmp_path / 'a' / 'report.html'}" in result.stdout
    assert (tmp_path / "a" / "report.html").is_file()
    monkeypatch.setattr(write, "save_page", lambda *_: 1 / 0)
    result = histolumen(*arguments, tmp_path / "b")
    assert result.returncode == 0
    assert "no report was written (division by zero)" in result.stderr
    assert (tmp_path / "b" / "best").is_dir()
    result = histolumen(*arguments, tmp_path / "c", "--no-report")
    assert "report:" not in result.stdout
    assert not (tmp_path / "c" / "evaluation").exists()
