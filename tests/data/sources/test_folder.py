"""A folder per class or a user's table becomes a manifest, or an error that says what is missing."""

import errno
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from histolumen.data.manifest import Manifest, Row
from histolumen.data.search import search_images
from histolumen.data.sources.folder import SplitPlan, manifest_from_folder, manifest_from_table
from histolumen.errors import ConfigError, DataError
from histolumen.settings import from_options
from tiny import Recorder

PLAN = SplitPlan()


def tree(root: Path, *names: str) -> Path:
    """Create empty files; the manifest needs only their names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def labels(manifest: Manifest) -> dict[str, str]:
    return {row.image: row.label for row in manifest.rows}


# --- folders


def test_a_folder_per_class(tmp_path):
    tree(tmp_path, "benign/1.png", "benign/2.JPG", "malignant/1.tif", "malignant/deeper/3.bmp", "malignant/notes.txt")
    manifest = manifest_from_folder(tmp_path, PLAN)
    assert manifest.root == tmp_path
    assert labels(manifest) == {
        "benign/1.png": "benign",
        "benign/2.JPG": "benign",
        "malignant/1.tif": "malignant",
        "malignant/deeper/3.bmp": "malignant",
    }


@pytest.mark.parametrize("validation", ["valid", "val", "Validation"])
def test_a_folder_per_split_and_class(tmp_path, validation):
    tree(tmp_path, "train/a/1.png", "Train/b/2.png", f"{validation}/a/3.png", "TEST/b/4.png")
    rows = manifest_from_folder(tmp_path, PLAN).rows
    assert {Path(row.image).name: (row.split, row.label) for row in rows} == {
        "1.png": ("train", "a"),
        "2.png": ("train", "b"),
        "3.png": ("valid", "a"),
        "4.png": ("test", "b"),
    }


def test_splits_of_a_plain_folder_follow_the_plan_and_its_seed(tmp_path):
    tree(tmp_path, *(f"{label}/{number}.png" for label in "ab" for number in range(20)))
    first, again = (manifest_from_folder(tmp_path, SplitPlan(valid=0.1, test=0.3, seed=1)) for _ in range(2))
    assert first == again
    assert Counter((row.label, row.split) for row in first.rows) == {
        (label, split): count for label in "ab" for split, count in [("train", 12), ("valid", 2), ("test", 6)]
    }
    assert manifest_from_folder(tmp_path, SplitPlan(valid=0.1, test=0.3, seed=2)) != first


@pytest.mark.parametrize("mask", ["1_mask.png", "1_anno.png", "1_mask.bmp", "1_anno.tif", "1_mask.tiff"])
def test_a_mask_beside_its_image_is_not_an_image(tmp_path, mask):
    tree(tmp_path, "a/1.png", f"a/{mask}", "b/2.png")
    assert {row.image: row.mask for row in manifest_from_folder(tmp_path, PLAN).rows} == {
        "a/1.png": f"a/{mask}",
        "b/2.png": "",
    }


@pytest.mark.parametrize("mask", ["1_mask.webp", "1_mask.PNG", "1_anno.jpg"])
def test_a_mask_may_have_any_ending_that_images_have(tmp_path, mask):
    tree(tmp_path, "a/1.bmp", f"a/{mask}")
    assert [row.mask for row in manifest_from_folder(tmp_path, PLAN).rows] == [f"a/{mask}"]


def test_a_mask_corrected_in_the_viewer_is_used_if_there_is_no_other(tmp_path):
    tree(tmp_path, "a/1.png", "a/1_corrected.png", "a/2.png", "a/2_corrected.png", "a/2_mask.png")
    assert {row.image: row.mask for row in manifest_from_folder(tmp_path, PLAN).rows} == {
        "a/1.png": "a/1_corrected.png",
        "a/2.png": "a/2_mask.png",
    }


def test_hidden_files_and_folders_are_skipped(tmp_path):
    tree(tmp_path, "a/1.png", "a/._1.png", ".cache/b/2.png")
    assert labels(manifest_from_folder(tmp_path, PLAN)) == {"a/1.png": "a"}


def test_the_patient_pattern_finds_patients_and_keeps_them_in_one_split(tmp_path):
    tree(tmp_path, *(f"{'ab'[patient % 2]}/p{patient:02}_{n}.png" for patient in range(12) for n in range(4)))
    rows = manifest_from_folder(tmp_path, SplitPlan(valid=0.25, test=0.25), r"/(p\d+)_").rows
    assert {row.patient for row in rows} == {f"p{patient:02}" for patient in range(12)}
    assert all(row.patient in row.image for row in rows)
    assert len({(row.patient, row.split) for row in rows}) == 12
    assert {row.split for row in rows} == {"train", "valid", "test"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("p(", "not a regular expression"),
        (r"p\d+", "has no group (...)"),
        (r"slide(\d+)", "a/p1.png: does not match the patient pattern 'slide(\\d+)'"),
    ],
)
def test_an_invalid_patient_pattern_is_refused(tmp_path, pattern, message):
    tree(tmp_path, "a/p1.png", "b/p2.png")
    with pytest.raises(DataError, match=re.escape(message)):
        manifest_from_folder(tmp_path, PLAN, pattern)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no images in class folders"),
        (["a/notes.txt"], "no images in class folders"),
        (["a/1_mask.png"], "no images in class folders"),
        (["1.png", "a/2.png"], "1.png: is not in a class folder"),
        (["train/a/1.png", "other/2.png"], "only some images have a split"),
    ],
)
def test_a_folder_with_another_layout_is_refused(tmp_path, names, message):
    with pytest.raises(DataError, match=re.escape(str(tmp_path)) + ".*" + message):
        manifest_from_folder(tree(tmp_path, *names), PLAN)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="none: no such folder"):
        manifest_from_folder(tmp_path / "none", PLAN)


# --- tables


def from_table(root: Path, text: str) -> Manifest:
    (root / "labels.csv").write_text(text)
    return manifest_from_table(root / "images", root / "labels.csv", PLAN)


@pytest.fixture
def images(tmp_path) -> Path:
    tree(tmp_path, *(f"images/{number}.png" for number in range(1, 5)))
    return tmp_path


def test_a_table_with_all_columns(images):
    manifest = from_table(
        images,
        "label,image,patient,split,mask\nbenign,1.png,p1,Train,m/1.png\nmalignant,2.png,,val,\nbenign,3.png,p2,test,\n",
    )
    assert manifest.root == images / "images"
    assert manifest.rows == (
        Row("1.png", "benign", "train", "m/1.png", "p1"),
        Row("2.png", "malignant", "valid"),
        Row("3.png", "benign", "test", "", "p2"),
    )


def test_a_table_with_image_and_label_alone_is_split_by_the_plan(images):
    manifest = from_table(images, "image,label\r1.png, benign\r2.png, malignant\r")
    assert labels(manifest) == {"1.png": "benign", "2.png": "malignant"}
    assert {row.split for row in manifest.rows} <= {"train", "valid", "test"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("image,label\n", "lists no image"),
        ("image,lable\n1.png,benign\n", "unknown column 'lable'; did you mean 'label'?"),
        ("image,mask\n1.png,m.png\n", "no column 'label'"),
        ("label,mask\nbenign,m.png\n", "no column 'image'"),
        ("image,label\n1.png,benign\n2.png\n", "line 3: 1 values for 2 columns"),
        ("image,label\n1.png,benign\n2.png,\n", "line 3: image and label must both be given"),
        ("image,label\n,benign\n", "line 2: image and label must both be given"),
        ("image,label,split\n1.png,benign,trian\n", "line 2: unknown split 'trian'; did you mean 'train'?"),
        ("image,label\n1.png,benign\n2.png,benign\n1.png,malignant\n", "lists 1.png twice"),
        ("image,label\n1.png,benign\n8.png,benign\n9.png,benign\n", "2 of 3 images are not in"),
    ],
)
def test_an_invalid_table_is_refused_with_the_reason(images, text, message):
    with pytest.raises(DataError, match="labels.csv.*" + re.escape(message)):
        from_table(images, text)


def test_the_first_missing_image_is_named(images):
    with pytest.raises(DataError, match=r"first: 8\.png"):
        from_table(images, "image,label\n1.png,benign\n8.png,benign\n9.png,benign\n")


def test_a_split_for_some_images_only_is_refused(images):
    with pytest.raises(DataError, match="only some images have a split"):
        from_table(images, "image,label,split\n1.png,benign,train\n2.png,benign,\n")


def test_a_missing_table_is_refused(images):
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        manifest_from_table(images, images / "none.csv", PLAN)


def test_a_split_folder_without_class_folders_is_refused(tmp_path):
    tree(tmp_path, "train/x.png")
    with pytest.raises(DataError, match="is not in a class folder"):
        manifest_from_folder(tmp_path, PLAN)


def test_hidden_files_are_not_images(tmp_path):
    tree(tmp_path, "a/x.png", "a/._x.png", ".b/y.png")
    assert [path.name for path in search_images(tmp_path).images] == ["x.png"]


# --- what cannot be read is said


def said_by(source: Path) -> tuple[Manifest, list[str]]:
    progress = Recorder()
    return manifest_from_folder(source, PLAN, progress=progress), progress.messages


@pytest.fixture
def locked(monkeypatch):
    """Make folders unreadable, for root too, who may read everything."""
    names: set[str] = set()
    real = os.scandir

    def scandir(path="."):
        if Path(os.fsdecode(path)).name in names:
            raise PermissionError(errno.EACCES, "Permission denied", os.fsdecode(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return names


def test_a_subfolder_that_cannot_be_read_is_listed(tmp_path, locked):
    tree(tmp_path, "a/1.png", "a/private/2.png", "b/3.png")
    locked.add("private")
    manifest, messages = said_by(tmp_path)
    assert set(labels(manifest)) == {"a/1.png", "b/3.png"}
    assert messages == [f"left out: {tmp_path / 'a' / 'private'}: cannot be read (Permission denied)"]


def test_a_class_folder_that_cannot_be_read_is_an_error(tmp_path, locked):
    tree(tmp_path, "a/1.png", "b/2.png")
    locked.add("b")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'b'}: cannot be read (Permission denied)")):
        manifest_from_folder(tmp_path, PLAN)


@pytest.mark.parametrize("content", [[], ["b/slide.svs"], ["b/1_mask.png"], ["b/deep/notes.txt"]])
def test_a_class_without_images_is_an_error(tmp_path, content):
    tree(tmp_path, "a/1.png", *content)
    (tmp_path / "b").mkdir(exist_ok=True)
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'b'}: this class folder has no image")):
        manifest_from_folder(tmp_path, PLAN)


def test_a_class_of_a_split_without_images_is_an_error(tmp_path):
    tree(tmp_path, "train/a/1.png", "train/b/2.png", "test/a/3.png")
    (tmp_path / "test" / "b").mkdir()
    with pytest.raises(DataError, match="this class folder has no image"):
        manifest_from_folder(tmp_path, PLAN)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_links_to_nowhere_and_loops_are_listed(tmp_path):
    tree(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "gone.png").symlink_to(tmp_path / "absent.png")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "absent")
    (tmp_path / "b" / "self.png").symlink_to(tmp_path / "b" / "self.png")
    (tmp_path / "b" / "up").symlink_to(tmp_path)
    manifest, messages = said_by(tmp_path)
    assert set(labels(manifest)) == {"a/1.png", "b/2.png"}
    assert [message.split(": ")[1] for message in messages] == [
        str(tmp_path / name) for name in ("a/gone", "a/gone.png", "b/self.png", "b/up")
    ]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_linked_class_folders_are_followed(tmp_path):
    tree(tmp_path / "elsewhere", "b/2.png")
    tree(tmp_path / "images", "a/1.png")
    (tmp_path / "images" / "b").symlink_to(tmp_path / "elsewhere" / "b")
    assert labels(manifest_from_folder(tmp_path / "images", PLAN)) == {"a/1.png": "a", "b/2.png": "b"}


# --- labels


@pytest.mark.parametrize("label", ["be\0nign", "benign\x07", "be\u200bnign", "be\u202enign"])
def test_a_label_with_invisible_characters_is_refused(images, label):
    with pytest.raises(DataError, match=r"label .* has a character that cannot be seen"):
        from_table(images, f"image,label\n1.png,{label}\n2.png,malignant\n")


@pytest.mark.parametrize(("one", "other"), [("Benign", "benign"), ("be\u0301nin", "b\u00e9nin"), ("a  b", "a b")])
def test_labels_that_look_alike_are_refused(images, one, other):
    with pytest.raises(DataError, match=f"labels '{one}' and '{other}' differ only in"):
        from_table(images, f"image,label\n1.png,{one}\n2.png,{other}\n3.png,malignant\n")


def test_class_folders_that_look_alike_are_refused(tmp_path):
    with pytest.raises(DataError, match="labels 'Benign' and 'benign' differ only in"):
        manifest_from_folder(tree(tmp_path, "Benign/1.png", "benign/2.png", "malignant/3.png"), PLAN)


def test_a_patient_in_two_given_splits_is_refused(images):
    with pytest.raises(DataError, match="patient p1 has images in the splits test and train"):
        from_table(images, "image,label,split,patient\n1.png,benign,train,p1\n2.png,malignant,test,p1\n")


@pytest.mark.parametrize("value", ["nan", "inf", "-0.1", "1.5"])
def test_a_share_that_is_no_share_is_refused(value):
    with pytest.raises(ConfigError, match="--valid"):
        from_options(SplitPlan, valid=float(value))
