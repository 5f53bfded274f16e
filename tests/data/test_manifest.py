"""Manifests are read back as written, and every kind of invalid table has a clear error."""

import os
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from histolumen.data.manifest import SPLITS, Manifest, Row, check_trainable, first_repeated, read_csv, read_manifest
from histolumen.data.names import label_key
from histolumen.errors import DataError, HistolumenError

ROWS = (
    Row("a/1.png", "benign", "train", "a/1_mask.png", "patient 1"),
    Row("b/2.png", "malignant", "train"),
    Row("b/3.png", "malignant", "valid", patient="patient 2"),
    Row("a/4.png", "benign", "test", "a/4_mask.png"),
)


@pytest.fixture
def table(tmp_path: Path):
    """Write text (or bytes) as a CSV."""

    def write(content: str | bytes, name: str = "manifest.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# --- writing and reading back


def test_a_manifest_beside_its_images_has_no_root_column(tmp_path):
    path = tmp_path / "manifest.csv"
    Manifest(ROWS, tmp_path).write(path)
    assert path.read_text().splitlines()[:3] == [
        "image,label,mask,split,patient",
        "a/1.png,benign,a/1_mask.png,train,patient 1",
        "b/2.png,malignant,,train,",
    ]
    assert read_manifest(path) == Manifest(ROWS, tmp_path)


NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).map(str.strip).filter(bool)

PATHS = NAMES.filter(lambda text: not text.startswith("/") and not os.path.normpath(text).startswith("."))

LABELS = NAMES.filter(lambda text: not any(unicodedata.category(character) == "Cf" for character in text))


@settings(deadline=None)  # the time to flush to disk varies
@given(
    rows=st.lists(
        st.builds(Row, PATHS, LABELS, st.sampled_from(SPLITS), PATHS | st.just(""), NAMES | st.just("")),
        min_size=1,
        unique_by=lambda row: row.image,
    )
)
def test_any_names_are_read_back_as_they_were_written(rows, tmp_path_factory):
    assume(len({label_key(row.label) for row in rows}) == len({row.label for row in rows}))
    path = tmp_path_factory.getbasetemp() / "any.csv"
    written = Manifest(tuple(rows), path.parent)
    written.write(path)
    assert read_manifest(path) == written


@pytest.mark.parametrize("place", ["runs/x/manifest.csv", "manifest.csv", "images/lists/manifest.csv"])
def test_a_manifest_in_another_folder_finds_its_images(tmp_path, place):
    image = tmp_path / "images" / "a" / "1.png"
    image.parent.mkdir(parents=True)
    image.touch()
    path = tmp_path / place
    Manifest(ROWS[:1], tmp_path / "images").write(path)
    read = read_manifest(path)
    assert read.rows == ROWS[:1]
    assert read.image_path(read.rows[0]).samefile(image)
    assert str(tmp_path) not in path.read_text()  # the whole folder may be copied elsewhere


def test_a_manifest_and_its_images_may_move_together(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    image = before / "images" / "a" / "1.png"
    image.parent.mkdir(parents=True)
    image.touch()
    Manifest(ROWS[:1], before / "images").write(before / "runs" / "manifest.csv")
    before.rename(after)
    moved = read_manifest(after / "runs" / "manifest.csv")
    assert moved.image_path(moved.rows[0]).is_file()


def test_relative_and_absolute_paths_are_equivalent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Manifest(ROWS, Path("images")).write(Path("manifest.csv"))
    assert read_manifest(tmp_path / "manifest.csv").root == tmp_path / "images"


def test_moved_images_are_found_in_the_folder_given(tmp_path):
    Manifest(ROWS, tmp_path / "old").write(tmp_path / "manifest.csv")
    moved = read_manifest(tmp_path / "manifest.csv", images=tmp_path / "new")
    assert moved.image_path(ROWS[0]) == tmp_path / "new" / "a" / "1.png"
    assert moved.mask_path(ROWS[0]) == tmp_path / "new" / "a" / "1_mask.png"


def test_a_row_without_mask_has_no_mask_path(tmp_path):
    assert Manifest(ROWS, tmp_path).mask_path(ROWS[1]) is None


def test_a_file_name_that_is_not_unicode_is_refused(tmp_path):
    """Old archives contain such names; Python represents them with lone surrogates."""
    name = os.fsdecode(b"caf\xe9.png")
    with pytest.raises(HistolumenError, match="caf"):
        Manifest((Row(name, "benign", "train"),), tmp_path).write(tmp_path / "manifest.csv")


# --- rows


def test_classes_are_in_alphabetical_order(tmp_path):
    assert Manifest(ROWS[::-1], tmp_path).classes == ["benign", "malignant"]


def test_split_gives_its_rows_in_order(tmp_path):
    assert Manifest(ROWS, tmp_path).split("train").rows == ROWS[:2]


def test_an_unknown_split_names_the_nearest(tmp_path):
    with pytest.raises(DataError, match="unknown split 'vali'; did you mean 'valid'"):
        Manifest(ROWS, tmp_path).split("vali")


def test_summary_counts_classes_and_masks_per_split(tmp_path):
    lines = Manifest(ROWS[:3], tmp_path).summary().splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "train 2 images: 1 benign, 1 malignant; 1 with a mask",
        "valid 1 images: 1 malignant; 0 with a mask",
    ]


# --- tables from other software


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_and_spaces_around_values(table, end):
    lines = ["image, label , split", "1.png, benign, train", "", " 2.png ,malignant,  valid", ""]
    read = read_manifest(table(end.join(lines)))
    assert read.rows == (Row("1.png", "benign", "train"), Row("2.png", "malignant", "valid"))


def test_byte_order_mark_and_quoted_commas(table):
    text = '\ufeffimage,label,split\n"a, b.png","be ""nign""",train\n'
    assert read_manifest(table(text)).rows == (Row("a, b.png", 'be "nign"', "train"),)


@pytest.mark.parametrize("patient", ["patient", "group"])  # `group` in manifests of earlier versions
def test_columns_may_come_in_any_order(table, patient):
    text = f"{patient},split,label,image\np1,test,benign,1.png\n"
    assert read_manifest(table(text)).rows == (Row("1.png", "benign", "test", patient="p1"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n  \n,,\n", "the file is empty"),
        ("image,label,split\n", "lists no image"),
        ("image,lable,split\n1.png,benign,train\n", "unknown column 'lable'; did you mean 'label'?"),
        ("image;label;split\n1.png;benign;train\n", "separated by semicolons"),
        ("image,label\n1.png,benign\n", "no column 'split'"),
        ("label,split\nbenign,train\n", "no column 'image'"),
        ("image,label,split\n1.png,benign\n", "line 2: 2 values for 3 columns"),
        ("image,label,split\n1.png,benign,train\n2.png,benign,train,,\n", "line 3: 5 values for 3 columns"),
        ("image,label,split\n1.png,benign,trian\n", "line 2: unknown split 'trian'; did you mean 'train'?"),
        ("image,label,split\n1.png,benign,\n", "line 2: unknown split ''"),
        ("image,label,split\n1.png,,train\n", "line 2: no label"),
        ("image,label,split\n,benign,train\n", "line 2: no image"),
        ("image,label,split\n1.png,benign,train\n2.png,b,test\n1.png,benign,test\n", "lists 1.png twice"),
        ("image,label,split,root\n1.png,benign,train,a\n2.png,benign,train,b\n", "names 2 root folders"),
    ],
)
def test_an_invalid_table_is_refused_with_the_reason(table, text, message):
    path = table(text)
    with pytest.raises(DataError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        read_manifest(path)


@pytest.mark.parametrize("fault", ["2.png,benign", "2.png,benign,trian"])
def test_the_line_number_is_that_of_the_file(table, fault):
    with pytest.raises(DataError, match="line 5"):
        read_manifest(table(f"image,label,split\n\n1.png,benign,train\n\n{fault}\n"))


@pytest.mark.parametrize(
    "content",
    ["image,label,split\ncafé.png,benign,train\n".encode("latin-1"), "image,label,split\n".encode("utf-16")],
)
def test_another_encoding_is_refused(table, content):
    with pytest.raises(DataError, match="UTF-8"):
        read_csv(table(content))


def test_a_text_that_is_not_a_table_is_refused(table):
    with pytest.raises(DataError, match=r"manifest\.csv"):
        read_csv(table("x" * 200_000))


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_manifest(tmp_path / "none.csv")
    with pytest.raises(DataError, match="not a readable CSV"):
        read_manifest(tmp_path)


def test_first_repeated():
    assert first_repeated(["a", "b", "c", "b", "a"]) == "b"
    assert first_repeated(["a", "b"]) is None


# --- requirements of training


def manifest_of(*pairs: str) -> Manifest:
    rows = [Row(f"{n}.png", label, split) for n, (split, label) in enumerate(pair.split() for pair in pairs)]
    return Manifest(tuple(rows), Path())


def test_two_classes_in_training_are_enough():
    check_trainable(manifest_of("train a", "train b"), Path("m.csv"))
    check_trainable(manifest_of("train a", "train b", "train c", "valid a", "test b"), Path("m.csv"))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["valid a", "test b"], "training split has no image"),
        (["train a", "train a", "valid b", "test b"], "training split has only 'a'"),
        (["train benign", "train malignant", "valid maligant"], "'maligant' appears in the valid split but not in"),
        (["train benign", "train malignant", "test maligant"], "did you mean 'malignant'"),
    ],
)
def test_labels_that_training_never_sees_are_refused(pairs, message):
    with pytest.raises(DataError, match="^m.csv: .*" + message):
        check_trainable(manifest_of(*pairs), Path("m.csv"))


# --- tables that other programs write, labels, patients


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_table_with_another_separator_gets_help(tmp_path, mark, name):
    path = tmp_path / "m.csv"
    path.write_text("image,label,split\n1.png,a,train\n".replace(",", mark))
    with pytest.raises(DataError, match=f"m.csv: its columns are separated by {name}; save it as CSV with commas"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1.png,be\0nign,train,\n2.png,b,train,\n", "has a character that cannot be seen"),
        ("1.png,Benign,train,\n2.png,benign,test,\n", "labels 'Benign' and 'benign' differ only in"),
        ("1\0.png,a,train,\n2.png,b,train,\n", "has a character that cannot be seen"),
        ("1.png,a,train,p\x01\n2.png,b,train,\n", "has a character that cannot be seen"),
    ],
)
def test_names_that_mislead_are_refused(tmp_path, rows, message):
    path = tmp_path / "m.csv"
    path.write_text("image,label,split,patient\n" + rows)
    with pytest.raises(DataError, match=message):
        read_manifest(path)


def test_the_digest_covers_every_row_and_not_the_folder(tmp_path):
    rows = (Row("1.png", "a", "train"), Row("2.png", "b", "test", "2_mask.png", "p"))
    digest = Manifest(rows, tmp_path).digest
    assert len(digest) == 64
    assert Manifest(rows, tmp_path / "moved").digest == digest
    for changed in (rows[:1], (rows[0], Row("2.png", "b", "test", "2_mask.png", "q")), rows[::-1]):
        assert Manifest(changed, tmp_path).digest != digest
