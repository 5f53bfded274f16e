"""WILDCAT pooling against values computed by hand."""

import pytest
import torch
from torch import nn

from histolumen.nets.pooling import WildcatHead


def test_class_maps_are_means_over_modalities():
    head = WildcatHead(channels=2, classes=2, modalities=3)
    with torch.no_grad():
        head.modality_maps.weight.zero_()
        head.modality_maps.bias.copy_(torch.tensor([0.0, 3.0, 6.0, 1.0, 1.0, 4.0]))
    maps = head.maps(torch.zeros(1, 2, 4, 4))
    assert maps.shape == (1, 2, 4, 4)
    assert maps[0, :, 0, 0].tolist() == [3.0, 2.0]


def test_scores_combine_the_highest_and_lowest_positions():
    head = WildcatHead(1, 1, kmax=0.3, kmin=0.2, alpha=0.6, dropout=0.0)
    maps = torch.arange(10.0).reshape(1, 1, 2, 5)
    assert head.scores(maps).item() == pytest.approx((7 + 8 + 9) / 3 + 0.6 * (0 + 1) / 2)


def test_without_kmin_only_the_highest_positions_count():
    head = WildcatHead(1, 1, kmax=0.3, kmin=0.0, alpha=0.6, dropout=0.0)
    assert head.scores(torch.arange(10.0).reshape(1, 1, 2, 5)).item() == pytest.approx(8.0)


def test_one_position_is_enough():
    head = WildcatHead(1, 2, kmax=0.3, dropout=0.0)
    assert head.scores(torch.tensor([[[[4.0]], [[-1.0]]]])).tolist() == [[4.0, -1.0]]


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    head = WildcatHead(1, 1, kmax=1.0 - 1e-9, dropout=0.5)
    maps = torch.rand(1, 1, 16, 16)
    assert head.train().scores(maps) != head.train().scores(maps)
    assert head.eval().scores(maps) == head.eval().scores(maps)


def test_parameters_of_the_papers_heads():
    assert sum(p.numel() for p in WildcatHead(512, 2, modalities=5).parameters()) == 5_130
    assert sum(p.numel() for p in WildcatHead(512, 2, modalities=4).parameters()) == 4_104
    assert isinstance(WildcatHead(512, 2).modality_maps, nn.Conv2d)
