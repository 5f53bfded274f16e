"""Files that are written can be read back with standard readers."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from histolumen.export.files import save_binary_mask, save_json, save_picture, save_soft_mask, save_table, to_json


def test_a_picture_is_read_back_unchanged(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    save_picture(Image.fromarray(pixels), tmp_path / "deep" / "x.png")
    read = Image.open(tmp_path / "deep" / "x.png")
    assert read.format == "PNG"
    assert (np.asarray(read) == pixels).all()


def test_a_soft_mask_keeps_sixteen_bits(tmp_path):
    soft = np.random.default_rng(0).random((6, 7)).astype(np.float32)
    soft[0, :2] = 0, 1
    save_soft_mask(soft, tmp_path / "x.png")
    read = np.asarray(Image.open(tmp_path / "x.png"))
    assert read.dtype == np.uint16
    assert (read[0, 0], read[0, 1]) == (0, 65535)
    assert np.abs(read / 65535 - soft).max() <= 0.5 / 65535 + 1e-7


def test_a_soft_mask_out_of_range_is_clipped_not_wrapped(tmp_path):
    save_soft_mask(np.array([[-0.001, 1.001]]), tmp_path / "x.png")
    assert np.asarray(Image.open(tmp_path / "x.png")).tolist() == [[0, 65535]]


def test_a_binary_mask_is_black_and_white(tmp_path):
    save_binary_mask(np.array([[True, False]]), tmp_path / "x.png")
    read = Image.open(tmp_path / "x.png")
    assert read.mode == "L"
    assert np.asarray(read).tolist() == [[255, 0]]


def test_a_table_has_the_columns_of_all_records_in_order_of_appearance(tmp_path):
    path = tmp_path / "x.csv"
    save_table([{"image": "a, b.png", "p": 0.5}, {"image": "é.png", "note": 'a "word"'}], path)
    with path.open(newline="", encoding="utf-8") as handle:
        assert list(csv.reader(handle)) == [
            ["image", "p", "note"],
            ["a, b.png", "0.5", ""],
            ["é.png", "", 'a "word"'],
        ]


def test_json_writes_nan_and_infinity_as_null(tmp_path):
    save_json({"f1": math.nan, "nested": [1.5, (math.inf, None)], "name": "x"}, tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == {"f1": None, "nested": [1.5, [None, None]], "name": "x"}
    assert text.endswith("}\n")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(plain)
def test_other_json_values_are_read_back_unchanged(content):
    assert json.loads(to_json(content)) == content


@pytest.mark.parametrize(
    ("save", "old", "unsaveable"),
    [
        (save_json, {"a": 1}, {"a": object()}),
        (save_picture, Image.new("RGB", (2, 2)), Image.new("HSV", (2, 2))),
    ],
)
def test_a_failed_write_leaves_the_old_file(tmp_path, save, old, unsaveable):
    path = tmp_path / "x"
    save(old, path)
    before = path.read_bytes()
    with pytest.raises((TypeError, OSError)):
        save(unsaveable, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
