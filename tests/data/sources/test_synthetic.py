"""A synthetic data set is complete, balanced, and reproducible from its seed."""

from collections import Counter

import pytest

from histolumen.data.image import read_image, read_mask
from histolumen.data.sources.synthetic import write_synthetic_set
from histolumen.data.sources.synthetic_image import make_sample
from tiny import Recorder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Twenty images of 64 pixels."""
    return write_synthetic_set(tmp_path_factory.mktemp("set"), images=20, size=64, seed=5)


def test_classes_alternate_and_are_spread_evenly_over_the_splits(written):
    assert [row.label for row in written.rows] == ["benign", "malignant"] * 10
    assert Counter((row.label, row.split) for row in written.rows) == {
        (label, split): count
        for label in ("benign", "malignant")
        for split, count in [("train", 6), ("valid", 2), ("test", 2)]
    }


def test_files_hold_exactly_what_was_drawn(written):
    for number, row in list(enumerate(written.rows))[:2]:
        sample = make_sample(row.label, 64, 5 * 1_000_003 + number)
        assert (read_image(written.image_path(row)) == sample.image).all()
        assert (read_mask(written.mask_path(row), (64, 64)) == sample.mask).all()


def test_nothing_else_is_written(written):
    files = {path.relative_to(written.root).as_posix() for path in written.root.rglob("*") if path.is_file()}
    assert files == {name for row in written.rows for name in (row.image, row.mask)}


def test_an_image_does_not_depend_on_how_many_are_drawn(written, tmp_path):
    fewer = write_synthetic_set(tmp_path, images=3, size=64, seed=5)
    for few, many in zip(fewer.rows, written.rows[:3], strict=True):
        assert (few.image, few.label, few.mask) == (many.image, many.label, many.mask)
        assert fewer.image_path(few).read_bytes() == written.image_path(many).read_bytes()
        assert fewer.mask_path(few).read_bytes() == written.mask_path(many).read_bytes()


def test_another_seed_draws_other_images(written, tmp_path):
    other = write_synthetic_set(tmp_path, images=2, size=64, seed=6)
    mine = {written.image_path(row).read_bytes() for row in written.rows}
    assert mine.isdisjoint(other.image_path(row).read_bytes() for row in other.rows)


def test_no_image_is_repeated(written):
    assert len({written.image_path(row).read_bytes() for row in written.rows}) == 20


def test_progress_sees_every_image(tmp_path):
    recorder = Recorder()
    write_synthetic_set(tmp_path, images=3, size=64, seed=0, progress=recorder)
    assert recorder.seen == [0, 1, 2]
