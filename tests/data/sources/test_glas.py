"""GlaS in its official layout: on a small folder made here, and on the real data if available."""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from histolumen.data.image import read_mask
from histolumen.data.manifest import Row
from histolumen.data.sources.glas import manifest_from_glas, paper_split
from histolumen.errors import DataError

GRADES = (
    "name,patient ID, grade (GlaS), grade (Sirinukunwattana et al. 2015)\r"
    "train_1,2, malignant, moderately differentiated\r"
    "train_2,7, benign, healthy\r"
    "testA_1,5, benign, adenomatous\r"
)
REAL = Path(__file__).parents[4] / "shared" / "data" / "glas"


@pytest.fixture
def glas(tmp_path: Path) -> Path:
    """Three images, two annotations and a Grade.csv with bare CRs, as in the original."""
    (tmp_path / "Grade.csv").write_bytes(GRADES.encode())
    for name in ("train_1.bmp", "train_1_anno.bmp", "train_2.bmp", "train_2_anno.bmp", "testA_1.bmp"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_papers_split_has_67_18_and_80_images():
    split = paper_split()
    assert Counter(split.values()) == {"train": 67, "valid": 18, "test": 80}
    assert all(name.startswith("test") == (part == "test") for name, part in split.items())


def test_labels_patients_and_masks_are_found(glas):
    split = paper_split()
    manifest = manifest_from_glas(glas)
    assert manifest.root == glas
    assert set(manifest.rows) == {
        Row("train_1.bmp", "malignant", split["train_1"], "train_1_anno.bmp", "2"),
        Row("train_2.bmp", "benign", split["train_2"], "train_2_anno.bmp", "7"),
        Row("testA_1.bmp", "benign", "test", "", "5"),
    }


def test_any_lossless_format_is_accepted(glas):
    (glas / "train_1.bmp").rename(glas / "train_1.png")
    (glas / "train_1_anno.bmp").rename(glas / "train_1_anno.tif")
    row = next(row for row in manifest_from_glas(glas).rows if row.label == "malignant")
    assert (row.image, row.mask) == ("train_1.png", "train_1_anno.tif")


def test_files_with_other_names_are_ignored(glas):
    (glas / "train_999.bmp").touch()
    assert len(manifest_from_glas(glas).rows) == 3


def test_an_image_without_a_grade_is_refused(glas):
    (glas / "train_3.bmp").touch()
    with pytest.raises(DataError, match=r"Grade\.csv: has no line for train_3"):
        manifest_from_glas(glas)


def test_another_table_is_refused(glas):
    (glas / "Grade.csv").write_text("name,label\ntrain_1,benign\n")
    with pytest.raises(DataError, match=r"Grade\.csv: not the GlaS grade table"):
        manifest_from_glas(glas)


def test_a_folder_without_the_table_or_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match="none: no such folder"):
        manifest_from_glas(tmp_path / "none")
    with pytest.raises(DataError, match=r"Grade\.csv: no such file"):
        manifest_from_glas(tmp_path)
    (tmp_path / "Grade.csv").write_bytes(GRADES.encode())
    with pytest.raises(DataError, match="no GlaS images"):
        manifest_from_glas(tmp_path)


# --- the real data


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """The 85 training images as BMP files."""
    if not (REAL / "unpack.py").is_file():
        pytest.skip("the GlaS images are not in ../shared/data/glas")
    folder = tmp_path_factory.mktemp("glas")
    subprocess.run([sys.executable, REAL / "unpack.py", folder], check=True, capture_output=True)
    return folder


def test_real_labels_and_split_are_those_of_the_paper(real):
    manifest = manifest_from_glas(real)
    with (REAL / "split.csv").open(newline="") as handle:
        expected = {(line["name"], line["label"], line["split"]) for line in csv.DictReader(handle)}
    assert {(Path(row.image).stem, row.label, row.split) for row in manifest.rows} == expected
    assert Counter(row.split for row in manifest.rows) == {"train": 67, "valid": 18}


def test_every_real_image_has_its_patient_and_annotation(real):
    rows = manifest_from_glas(real).rows
    assert all(row.mask == row.image.replace(".bmp", "_anno.bmp") and row.patient for row in rows)


def test_a_real_annotation_holds_instance_labels_and_reads_as_one_mask(real):
    path = real / "train_1_anno.bmp"
    labels = np.asarray(Image.open(path))
    assert labels.max() > 1
    assert (read_mask(path, labels.shape) == (labels > 0)).all()
