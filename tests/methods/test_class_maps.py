"""Pooling of class maps into scores, and masks from maps, against values computed by hand."""

import math

import pytest
import torch
from build import tiny_method
from hypothesis import given
from hypothesis import strategies as st

from histolumen.methods.class_maps import chosen, margin_over_others

MAPS = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[0.0, 4.0], [-1.0, 5.0]]]])  # [1, 2, 2, 2]


def test_average_maximum_and_log_sum_exp():
    assert tiny_method("cam_avg").scores(MAPS).tolist() == [[3.0, 2.0]]
    assert tiny_method("cam_max").scores(MAPS).tolist() == [[6.0, 5.0]]
    expected = math.log(sum(math.exp(10 * v) for v in (1, 2, 3, 6)) / 4) / 10
    assert tiny_method("cam_lse").scores(MAPS)[0, 0].item() == pytest.approx(expected, rel=1e-6)


LOG_SUM_EXP = tiny_method("cam_lse")


@given(st.lists(st.floats(-20, 20), min_size=4, max_size=4))
def test_log_sum_exp_lies_between_mean_and_maximum(values):
    maps = torch.tensor(values, dtype=torch.float64).reshape(1, 1, 2, 2)
    score = LOG_SUM_EXP.scores(maps).item()
    assert maps.mean().item() - 1e-9 <= score <= maps.max().item() + 1e-9


def test_log_sum_exp_does_not_overflow():
    assert tiny_method("cam_lse").scores(1000 * MAPS).isfinite().all()


def test_wildcat_combines_the_highest_and_lowest_positions():
    method = tiny_method("wildcat", kmax=0.5, kmin=0.25, alpha=0.6)
    assert method.scores(MAPS)[0, 0].item() == pytest.approx((6 + 3) / 2 + 0.6 * 1)


def test_chosen_takes_each_images_own_class():
    maps = torch.arange(12.0).reshape(2, 3, 1, 2)
    assert chosen(maps, torch.tensor([2, 0])).flatten().tolist() == [4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_margin_is_positive_exactly_where_a_class_wins(classes):
    maps = torch.rand(4, classes, 6, 5)
    winner = maps.argmax(1, keepdim=True)
    expected = torch.zeros_like(maps, dtype=torch.bool).scatter(1, winner, True)
    assert torch.equal(margin_over_others(maps) > 0, expected)
    assert (margin_over_others(torch.zeros(1, classes, 2, 2)) == 0).all()  # no class wins a tie


def test_the_mask_is_the_normalised_map_of_the_predicted_class():
    method = tiny_method("cam_avg").eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        output = method(images)
    assert output.soft_mask.amin((1, 2, 3)).tolist() == [0, 0]
    assert output.soft_mask.amax((1, 2, 3)).tolist() == pytest.approx([1, 1], abs=1e-3)
    for index, label in enumerate(output.probs.argmax(1)):
        own = output.evidence[index, label]
        other = output.evidence[index, 1 - label]
        assert torch.allclose(own, -other)  # with two classes, the margins are opposite
