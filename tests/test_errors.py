"""All errors share one base class, and a misspelt name gives a suggestion."""

import pytest

from histolumen import errors
from histolumen.errors import HistolumenError, nearest


@pytest.mark.parametrize("name", ["ImageError", "ConfigError", "DataError", "WeightsError", "RunError", "DiskError"])
def test_every_error_is_a_histolumen_error(name):
    assert issubclass(getattr(errors, name), HistolumenError)


@pytest.mark.parametrize("written", ["lable", "labels", "Label"])
def test_the_nearest_name_is_suggested(written):
    assert nearest(written, ["image", "label", "split"]) == "did you mean 'label'?"


@pytest.mark.parametrize("written", ["zzz", ""])
def test_without_a_close_name_all_are_listed_in_order(written):
    assert nearest(written, ["split", "image", "label"]) == "known: image, label, split"


def test_of_many_names_only_a_few_are_shown():
    many = [f"network_{k}" for k in range(1000)]
    assert nearest("network_77x", many).startswith("did you mean 'network_77")
    for written in ("network_77x", "zzz", ""):
        assert 1 <= nearest(written, many).count("network_") <= 5


def test_names_may_come_from_any_iterable():
    assert nearest("tain", (name for name in ("train", "test"))) == "did you mean 'train'?"
