"""Many slides: failed slides are listed, finished ones are not repeated, and one table has them all."""

import errno
import json
import os
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from gland_slides import SMALL_TILES, tissue_picture
from slide_files import GLASS, write_slide

from commands import histolumen
from histolumen.engine.slides import batch
from histolumen.engine.slides.batch import do_slide, do_slides, plan_jobs, read_state, save_slides
from histolumen.engine.slides.prediction import OUTPUTS
from histolumen.errors import DiskError, SlideError
from histolumen.export.files import save_json
from histolumen.slides import store


def command(*arguments: object) -> subprocess.CompletedProcess:
    return histolumen("slide", *arguments)


def test_failed_slides_are_listed_and_the_others_predicted(tmp_path, gland_slide, tiny_run):
    slides = tmp_path / "slides"
    (slides / "more").mkdir(parents=True)
    shutil.copy(gland_slide, slides / "good.tif")
    write_slide(slides / "unstated.tif", tissue_picture(), mpp=None)
    write_slide(slides / "glass.tif", np.full((300, 300, 3), GLASS, np.uint8))
    cut = write_slide(slides / "cut.tif", tissue_picture(1280, 1280))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (slides / "text.svs").write_text("not a slide")
    shutil.copy(gland_slide, slides / "twin.tif")
    shutil.copy(gland_slide, slides / "more" / "twin.tif")
    out = tmp_path / "out"
    options = "--out", out, "--model-mpp", 0.5, "--tile", 256, "--overlap", 64
    result = command(tiny_run, slides, slides / "more/twin.tif", slides / "absent.svs", *options)
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("left out:")]
    for name, reason in {
        "unstated.tif": "--slide-mpp",
        "glass.tif": "no tissue",
        "cut.tif": "truncated",
        "text.svs": "not a slide",
        "absent.svs": "no such file",
        "more/twin.tif": "2 slides are called twin",
    }.items():
        (line,) = [line for line in lines if name in line]
        assert reason in line
    assert "1 of 8 slides done" in result.stdout
    states = {folder.name: read_state(folder).state for folder in out.iterdir() if folder.is_dir()}
    assert states == {"good": "done", "unstated": "failed", "glass": "failed", "cut": "failed", "text": "failed",
                      "absent": "failed"}  # fmt: skip
    table = (out / "slides.csv").read_text().splitlines()
    assert len(table) == 9
    again = command(tiny_run, slides / "good.tif", *options)
    assert again.returncode == 0
    assert "pass 1" not in again.stderr  # skipped: already predicted


def test_a_slide_is_repeated_when_its_inputs_change(tmp_path, gland_slide, tiny_run, monkeypatch):
    calls = []

    def fake_prediction(model, slide, folder, *_):
        calls.append(slide)
        folder.mkdir(exist_ok=True)
        for name in OUTPUTS:
            (folder / name).touch()
        return {"p": 1}

    monkeypatch.setattr(batch, "save_slide_prediction", fake_prediction)
    (job,), _ = plan_jobs(tiny_run, [gland_slide], tmp_path, SMALL_TILES)
    do_slide(job)
    do_slide(job)
    do_slide(replace(job, settings=SMALL_TILES.model_copy(update={"readers": 5})))  # does not change the result
    assert len(calls) == 1
    do_slide(replace(job, settings=SMALL_TILES.model_copy(update={"model_mpp": 1.0})))
    assert len(calls) == 2
    do_slide(job)
    (job.folder / "heatmap.tif").unlink()
    do_slide(job)
    assert len(calls) == 4
    twin = shutil.copy(gland_slide, tmp_path / "glands.tif")
    do_slide(replace(job, slide=Path(twin)))  # another slide with the same name
    assert len(calls) == 5


def test_a_worker_believed_lost_does_not_overwrite_the_result_of_another(tmp_path, gland_slide, tiny_run, monkeypatch):
    (job,), _ = plan_jobs(tiny_run, [gland_slide], tmp_path, SMALL_TILES)
    real = batch.save_slide_prediction

    def overtaken(*arguments):
        record = real(*arguments)
        state = batch.SlideState(str(job.slide), "done", record=record, made_with=batch._made_with(job))
        save_json(asdict(state), job.folder / "state.json")
        raise FileNotFoundError("work")

    monkeypatch.setattr(batch, "save_slide_prediction", overtaken)
    assert do_slide(job).state == "done"
    assert read_state(job.folder).state == "done"


def test_a_full_disk_stops_the_slides_and_the_next_call_goes_on(tmp_path, gland_slide, tiny_run, monkeypatch):
    (job,), _ = plan_jobs(tiny_run, [gland_slide], tmp_path, SMALL_TILES)
    written, real = [], os.pwrite

    def full(file, data, offset):
        written.append(len(data))
        if len(written) > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, offset)

    monkeypatch.setattr(store.os, "pwrite", full)
    with pytest.raises(DiskError, match="the disk is full"):  # further slides would fail too
        do_slide(job)
    monkeypatch.undo()
    state = do_slide(job)
    assert state.state == "done", state.why


def test_an_unexpected_error_fails_only_its_slide(tmp_path, gland_slide, tiny_run, monkeypatch):
    def broken(*_):
        raise RuntimeError("odd file")

    monkeypatch.setattr(batch, "save_slide_prediction", broken)
    jobs, _ = plan_jobs(tiny_run, [gland_slide], tmp_path, SMALL_TILES)
    (state,) = do_slides(jobs)
    assert state.state == "failed"
    assert "RuntimeError: odd file" in state.why
    assert json.loads((tmp_path / "glands/state.json").read_text())["why"] == state.why


def test_a_folder_without_slides_is_refused(tmp_path, tiny_run):
    with pytest.raises(SlideError, match="contains no slides"):
        plan_jobs(tiny_run, [tmp_path], tmp_path, SMALL_TILES)


def test_each_slide_has_one_row(tmp_path):
    first = batch.SlideState("b.svs", "failed", "why")
    second = batch.SlideState("a.svs", "done", record={"prediction": "benign"})
    save_json(asdict(replace(second, slide="before.svs")), tmp_path / "before/state.json")
    save_slides([first, second, second], tmp_path)
    rows = (tmp_path / "slides.csv").read_text().splitlines()
    assert rows[0].startswith("slide,")
    assert [row.split(",")[0] for row in rows[1:]] == ["a.svs", "b.svs", "before.svs"]
