import pytest

from histolumen.cli.lists import spread


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("glas --seeds 0 1 2 --out x", "glas --seeds 0 --seeds 1 --seeds 2 --out x"),
        ("--methods sem cam-avg glas", "--methods sem --methods cam-avg glas"),
        ("--seeds 0 1 glas", "--seeds 0 --seeds 1 glas"),
        ("--seeds 0 --seeds 1", "--seeds 0 --seeds 1"),
        ("--kinds sem lambda --data x", "--kinds sem lambda --data x"),
        ("--seeds", "--seeds"),
        ("--seeds many", "--seeds many"),
    ],
)
def test_a_list_option_stands_once_before_all_its_values(given, expected):
    assert spread(given.split()) == expected.split()
