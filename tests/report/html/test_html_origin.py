"""Where a run comes from is named only as far as it is known."""

from dataclasses import replace
from pathlib import Path

from histolumen.config import load_config
from histolumen.data.manifest import Manifest, Row
from histolumen.report.html.origin import paper_row, recipe_of


def manifest(*names: str, labels: tuple[str, ...] = ("benign", "malignant")) -> Manifest:
    return Manifest(tuple(Row(name, labels[k % 2], "train") for k, name in enumerate(names)), Path())


def test_a_shipped_recipe_is_recognised_with_its_changes():
    assert recipe_of(load_config("glas-best", ["seed=3"])) == "glas-best"
    assert recipe_of(load_config("glas-best", ["train.epochs=7"])) == "glas-best, train.epochs=7"


def test_other_settings_have_no_recipe():
    changes = [f"method.{key}=0.9" for key in ("kmax", "kmin", "alpha", "dropout", "sigma", "sigma_max", "lambda")]
    config = load_config("glas-best", [*changes, "train.lr=1", "images.short_side=64", "images.crop=64"])
    assert "of its own" in recipe_of(config)


def test_the_papers_row_belongs_to_its_images():
    glas = manifest("train_1.bmp", "testA_2.png")
    found = paper_row(load_config("glas-best"), glas)
    assert (found.benchmark, found.row.name, found.printed.f1_plus) == ("glas", "sem", 71.94)
    assert paper_row(load_config("glas-eem"), glas).row.name == "eem"
    assert paper_row(load_config("glas-negev"), glas) is None  # not in the paper
    assert paper_row(load_config("glas-sem"), manifest("a.png", "b.png")) is None


def test_patches_of_camelyon16_are_told_from_synthetic_metastases():
    labels = ("metastatic", "normal")
    config = load_config("camelyon16-sem")
    patches = manifest("patches/tumor_001/1_2.png", "patches/normal_002/3_4.png", labels=labels)
    assert paper_row(config, patches).benchmark == "camelyon16"
    assert paper_row(config, manifest("0001.png", "0002.png", labels=labels)) is None
    other = replace(patches, rows=tuple(replace(row, label="x") for row in patches.rows))
    assert paper_row(config, other) is None
