"""One family, and a hint for every misspelt name."""

import pytest

from histolumen import errors
from histolumen.errors import HistolumenError, nearest


@pytest.mark.parametrize("name", ["ImageError", "ConfigError", "DataError", "WeightsError", "RunError", "DiskError"])
def test_every_error_is_of_the_one_family(name):
    assert issubclass(getattr(errors, name), HistolumenError)


@pytest.mark.parametrize("written", ["lable", "labels", "Label"])
def test_the_nearest_name_is_suggested(written):
    assert nearest(written, ["image", "label", "split"]) == "did you mean 'label'?"


@pytest.mark.parametrize("written", ["zzz", ""])
def test_where_nothing_is_near_all_names_are_listed_in_order(written):
    assert nearest(written, ["split", "image", "label"]) == "known: image, label, split"


def test_names_may_come_from_any_iterable():
    assert nearest("tain", (name for name in ("train", "test"))) == "did you mean 'train'?"
