"""The split of the tissue in words: only what was measured, and only if it is clear."""

import math

import pytest
import torch
from torch import nn

from histolumen.proposals.clusters import TissueClusters
from histolumen.proposals.describe import describe_split, looks

IMAGES, POSITIONS = 10, 40


def pair(inside: float, outside: float) -> TissueClusters:
    return TissueClusters(torch.zeros(1), torch.ones(1), torch.eye(1), nn.Linear(1, 1), 1, 0.3, (inside, outside))


def left(share: float = 0.25) -> torch.Tensor:
    """Memberships: the first positions of each image are foreground."""
    return (torch.arange(POSITIONS) < share * POSITIONS).float().expand(IMAGES, -1)


def tissue(brightness: float = 0.0, blue: float = 0.0) -> torch.Tensor:
    """Random looks, with a difference between the first quarter and the rest of each image."""
    values = torch.rand(IMAGES, POSITIONS, 2, generator=torch.Generator().manual_seed(0))
    return values + left()[..., None] * torch.tensor([brightness, blue])


def described(appearance, memberships=None, pairs=None, classes=("benign", "malignant")):
    return describe_split(pairs or [pair(0.2, 0.4)] * 2, memberships or [left()] * 2, appearance, classes)


@pytest.mark.parametrize(
    ("brightness", "blue", "words"),
    [(-2, 0, "the darker part"), (2, 3, "the lighter, bluer part"), (0, -2, "the redder part")],
)
def test_words_follow_the_measured_difference(brightness, blue, words):
    first = described(tissue(brightness, blue))[0]
    assert first == (
        f"tissue split in two: {words} (25 % of the tissue) tells benign from malignant more surely, so it is taken as "
        "what decides"
    )


def test_without_a_clear_difference_none_is_claimed():
    appearance = tissue()
    appearance[::2] -= 2 * left()[::2, :, None]  # darker in one half of the images, lighter in the other
    appearance[1::2] += 2 * left()[1::2, :, None]
    assert "a part of about the same brightness and colour as the rest (25 %" in described(appearance)[0]


def test_certainty_is_the_geometric_mean_of_the_probability_over_both_looks():
    pairs = [pair(-math.log(0.9), -math.log(0.5)), pair(-math.log(0.4), -math.log(0.5))]
    line = described(tissue(1), pairs=pairs)[1]
    assert line.startswith("probability of the right label, typical: 0.60 from this part, 0.50 from the rest")
    assert line.endswith("agree on 100 % of it")


def test_a_small_gain_and_looks_that_differ_are_noted():
    assert len(described(tissue(1))) == 2
    assert "the difference is small" in described(tissue(1), pairs=[pair(0.30, 0.31)] * 2)[2]
    lines = described(tissue(1), memberships=[left(0.25), 1 - left(0.25)])
    assert "the two looks differ" in lines[-1]


def test_more_than_two_classes_are_not_listed():
    assert "tells the classes apart more surely" in described(tissue(1), classes=("a", "b", "c"))[0]


def test_an_image_that_is_all_foreground_takes_no_part():
    whole = left().clone()
    whole[0] = 1
    assert "the darker part" in described(tissue(-2), memberships=[whole] * 2)[0]
    assert "about the same" in described(tissue(-2), memberships=[torch.ones(IMAGES, POSITIONS)] * 2)[0]


def test_looks_are_brightness_and_blue_minus_red():
    image = torch.tensor([0.2, 0.4, 0.9])[:, None, None].expand(3, 2, 2)
    assert looks(image)[:, 0, 0].tolist() == pytest.approx([0.5, 0.7])
