"""Damaged files are accepted or refused with a `HistolumenError`; the short form of `make fuzz`."""

import contextlib
import string
import sys
from pathlib import Path

import pytest
from fuzz import example, judge
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import Kind, kinds

from histolumen.config import parse_config
from histolumen.data.manifest import Manifest, Row, read_manifest
from histolumen.errors import HistolumenError

INPUTS = 24  # of each kind; images six times as many

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of the process from /proc")


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory) -> dict[str, Kind]:
    return kinds(tmp_path_factory.mktemp("kinds"))


@linux
def test_damaged_files_of_every_kind_are_accepted_or_refused(every_kind, tmp_path):
    verdicts = {}
    for name, kind in every_kind.items():
        for number in range(INPUTS * (6 if name == "images" else 1)):
            data = example(kind, f"short {name}", number)
            verdict = judge(kind, data, tmp_path / "input")
            assert not verdict.startswith("failed"), (name, number, verdict)
            verdicts.setdefault(name, set()).add(verdict.split()[0])
    assert verdicts["images"] == {"accepted", "refused"}, "the inputs are all too damaged, or not at all"


@linux
def test_valid_files_of_every_kind_are_accepted(every_kind, tmp_path):
    """Else a fuzzer proves nothing: whatever is read would be refused at the first byte."""
    several, other_formats = {5, 20}, {21, 22, 23}
    for name, kind in every_kind.items():
        for number, data in enumerate(kind.examples):
            verdict = judge(kind, data, tmp_path / "input").split()[0]
            refused = name == "images" and number in several | other_formats
            assert verdict == ("refused" if refused else "accepted"), (name, number)


@linux
def test_a_reader_that_raises_or_takes_too_much_memory_is_found(tmp_path):
    def allocate(path: Path) -> None:
        bytearray(1_200_000_000)

    for read in (lambda path: {}["missing"], allocate):
        assert judge(Kind("x", [b"x"], (b"x",), read), b"x", tmp_path).startswith("failed")


words = st.text(string.printable + "é\u2028\ud7ff", min_size=1, max_size=12)


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(words, words, st.sampled_from(["train", "valid", "test", "other"]), words), max_size=4))
def test_any_table_is_a_manifest_or_an_error(rows, tmp_path_factory):
    """And what is accepted is the same after it has been written and read again."""
    folder = tmp_path_factory.mktemp("any")
    manifest = Manifest(tuple(Row(image, label, split, "", who) for image, label, split, who in rows), folder)
    manifest.write(folder / "manifest.csv")
    try:
        again = read_manifest(folder / "manifest.csv")
    except HistolumenError:
        return
    again.write(folder / "again.csv")
    assert read_manifest(folder / "again.csv").rows == again.rows


plain = st.none() | st.booleans() | st.integers() | st.floats() | words
values = st.recursive(plain, lambda each: st.lists(each, max_size=3) | st.dictionaries(words, each, max_size=3))
blocks = st.sampled_from(["method", "backbone", "images", "mask", "train", "seed", "other"])
keys = st.sampled_from(
    ["name", "epochs", "lr", "short_side", "crop", "jitter", "weights", "output_stride", "sigma", "x"]
)


@settings(max_examples=150)
@given(raw=st.dictionaries(blocks, values | st.dictionaries(keys, values, max_size=4), max_size=5))
def test_any_values_are_a_recipe_or_an_error(raw):
    method = raw.get("method")
    if isinstance(method, dict):
        method.setdefault("name", "maxmin")
    with contextlib.suppress(HistolumenError):
        parse_config(raw)
