"""`histolumen data`: nothing is overwritten or left out in silence, and a bad split is said when it is made."""

import os
import shutil

import pytest
from PIL import Image

from commands import histolumen as run


@pytest.fixture
def images(tmp_path, tiny_manifest):
    """Class folders with twelve images."""
    for index, row in enumerate(tiny_manifest.rows):
        target = tmp_path / "images" / row.label / f"{index:02}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny_manifest.image_path(row), target)
    return tmp_path / "images"


def test_an_edited_manifest_is_kept_unless_overwritten(images, tmp_path):
    out = tmp_path / "m.csv"
    assert run("data", "folder", images, "--out", out).returncode == 0
    original = out.read_text()
    assert run("data", "folder", images, "--out", out).returncode == 0  # the same content: nothing is lost
    edited = original.replace(",test,", ",valid,")
    out.write_text(edited)
    result = run("data", "folder", images, "--out", out)
    assert result.returncode == 2
    assert (
        "m.csv: exists and has another content; add --overwrite to replace it, or choose another --out" in result.stderr
    )
    assert out.read_text() == edited
    assert run("data", "folder", images, "--out", out, "--overwrite").returncode == 0
    assert out.read_text() == original


def test_any_other_file_is_kept(images, tmp_path):
    picture = images / "benign" / "00.png"
    before = picture.read_bytes()
    result = run("data", "folder", images, "--out", picture)
    assert result.returncode == 2
    assert "add --overwrite" in result.stderr
    assert picture.read_bytes() == before


@pytest.mark.parametrize("command", ["synthetic", "glas"])
def test_other_sources_keep_an_edited_manifest_too(command, images, tmp_path, tiny_manifest):
    out = tmp_path / "m.csv"
    out.write_text("mine")
    if command == "synthetic":
        arguments = [tmp_path / "s", "--images", 6, "--size", 64]
    else:
        source = tmp_path / "glas"
        source.mkdir()
        picture = Image.open(tiny_manifest.image_path(tiny_manifest.rows[0]))
        picture.save(source / "train_1.bmp")
        (source / "Grade.csv").write_text("name,patient ID,grade (GlaS)\ntrain_1,1,benign\n")
        arguments = [source]
    result = run("data", command, *arguments, "--out", out)
    assert result.returncode == 2
    assert "add --overwrite" in result.stderr
    assert out.read_text() == "mine"
    assert not (tmp_path / "s").exists()  # refused before anything is drawn
    assert run("data", command, *arguments, "--out", out, "--overwrite").returncode == 0


def test_drawn_images_are_not_replaced_by_others(tmp_path):
    arguments = ["data", "synthetic", tmp_path / "s", "--images", 6, "--size", 64]
    assert run(*arguments, "--seed", 1).returncode == 0
    picture = tmp_path / "s" / "images" / "0000.png"
    before = picture.read_bytes()
    assert run(*arguments, "--seed", 1).returncode == 0
    result = run(*arguments, "--seed", 2)
    assert result.returncode == 2
    assert "0000.png: exists" in result.stderr
    assert picture.read_bytes() == before
    assert run(*arguments, "--seed", 2, "--overwrite").returncode == 0
    assert picture.read_bytes() != before


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_what_is_left_out_is_listed_and_the_exit_code_says_so(images, tmp_path):
    (images / "benign" / "gone.png").symlink_to(tmp_path / "absent.png")
    result = run("data", "folder", images, "--out", tmp_path / "m.csv")
    assert result.returncode == 3
    assert f"left out: {images / 'benign' / 'gone.png'}" in result.stderr
    assert "gone.png" not in (tmp_path / "m.csv").read_text()


def test_a_split_without_a_class_is_said_when_it_is_made(images, tmp_path):
    for path in sorted((images / "malignant").iterdir())[2:]:
        path.unlink()
    result = run("data", "folder", images, "--out", tmp_path / "m.csv")
    assert result.returncode == 0
    assert "note: the valid split has no image of class malignant" in result.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "2"])
@pytest.mark.parametrize("option", ["--valid", "--test"])
def test_a_share_must_be_a_share(images, tmp_path, option, value):
    result = run("data", "folder", images, "--out", tmp_path / "m.csv", option, value)
    assert result.returncode == 2
    assert option in result.stderr
    assert not (tmp_path / "m.csv").exists()


def test_very_many_missing_files_give_a_short_list(tmp_path):
    rows = "".join(f"{number}.png,{'ab'[number % 2]},train\n" for number in range(3000))
    (tmp_path / "m.csv").write_text("image,label,split\n" + rows)
    result = run("data", "check", tmp_path / "m.csv")
    assert result.returncode == 2
    assert len(result.stdout.splitlines()) < 20
    assert "... and 2,990 more" in result.stdout
    assert "3000 problem(s) in 3000 images" in result.stdout
    assert "--images FOLDER" in result.stdout
