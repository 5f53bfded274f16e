"""The reports of predictions and slides: from their files alone, whatever columns the table has."""

import csv
import json
import shutil

import pytest

from commands import histolumen
from histolumen.errors import RunError
from histolumen.report.html.predictions import predictions_page
from histolumen.report.html.slides import slides_page
from histolumen.report.html.write import write_report


@pytest.fixture(scope="module")
def predicted(tiny_run, tiny_manifest, tmp_path_factory):
    """Predictions of all tiny images."""
    out = tmp_path_factory.mktemp("predicted") / "out"
    assert histolumen("predict", tiny_run, tiny_manifest.root / "images", "--out", out).returncode == 0
    return out


@pytest.fixture
def copy(predicted, tmp_path):
    shutil.copytree(predicted, tmp_path / "out")
    return tmp_path / "out"


def section(page, title):
    return next(section for section in page.sections if section.title == title)


def rewrite(folder, change):
    """Change every record of the table."""
    with (folder / "predictions.csv").open() as handle:
        records = [change(record) for record in csv.DictReader(handle)]
    with (folder / "predictions.csv").open("w", newline="") as handle:
        table = csv.DictWriter(handle, list(records[0]))
        table.writeheader()
        table.writerows(records)


def test_predictions_are_shown_least_certain_first(predicted, tiny_manifest):
    page = predictions_page(predicted, count=5)
    gallery = section(page, "Gallery").blocks[0]
    assert gallery.layers == ["image", "heat map", "outline"]
    assert len(gallery.cards) == 5
    probabilities = [float(card.verdict.split()[-1]) for card in gallery.cards]
    assert probabilities == sorted(probabilities)
    assert len(section(page, "Table").blocks[0].table.rows) == len(tiny_manifest.rows)
    counted = section(page, "Distribution").blocks[0].series
    assert sum(sum(values) for values in counted.values()) == len(tiny_manifest.rows)


def test_new_and_missing_columns_are_taken_as_they_are(copy):
    kept = ("image", "prediction", "probability")
    rewrite(copy, lambda record: {name: record[name] for name in kept} | {"unlike_training": "0.25", "remark": "<b>"})
    page = predictions_page(copy)
    table = section(page, "Table").blocks[0].table
    assert table.columns == ["image", "prediction", "probability", "unlike training", "remark"]
    assert table.rows[0][3:] == ["0.25", "<b>"]
    assert section(page, "Gallery").blocks[0].layers == ["image"]
    assert "&lt;b&gt;" in write_report(copy).read_text()


def test_moved_images_are_shown_by_their_overlay_or_found_again(copy, tiny_manifest):
    rewrite(copy, lambda record: record | {"image": "/gone/" + record["image"].split("/")[-1]})
    (copy / "predictions.json").unlink()
    assert section(predictions_page(copy), "Gallery").blocks[0].layers == ["outline"]
    found = predictions_page(copy, images=tiny_manifest.root / "images")
    assert section(found, "Gallery").blocks[0].layers == ["image", "heat map", "outline"]


def test_failures_are_listed(copy):
    state = json.loads((copy / "predictions.json").read_text())
    (copy / "predictions.json").write_text(json.dumps(state | {"failures": ["x.png: damaged"]}))
    assert section(predictions_page(copy), "Left out").blocks[0].paragraphs == ["x.png: damaged"]


def test_another_table_is_refused(tmp_path):
    (tmp_path / "predictions.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunError, match="histolumen predict"):
        predictions_page(tmp_path)


def test_slides_have_an_overview_with_heat_map(tiny_run, gland_slide, tmp_path):
    pytest.importorskip("openslide", reason="needs the extra [slides]")
    options = "--model-mpp", 0.5, "--tile", 256, "--overlap", 64, "--out", tmp_path / "out"
    (tmp_path / "text.svs").write_text("not a slide")
    assert histolumen("slide", tiny_run, gland_slide, tmp_path / "text.svs", *options).returncode == 3
    page = slides_page(tmp_path / "out")
    overview = section(page, "Overview")
    assert overview.blocks[0].layers == ["tissue", "heat map", "outline"]
    assert overview.blocks[1].table.rows[0][0] == gland_slide.name
    assert "not a slide" in section(page, "Left out").blocks[0].paragraphs[0]
    assert slides_page(tmp_path / "out" / gland_slide.stem).title == gland_slide.stem
    assert write_report(tmp_path / "out").is_file()


def test_a_folder_without_finished_slides_is_refused(tmp_path):
    (tmp_path / "slides.csv").write_text("slide\n")
    with pytest.raises(RunError, match="no finished slide"):
        slides_page(tmp_path)
