"""BatchNorm statistics of whole, foreground and background images: shared, separate, frozen."""

import copy

import pytest
import torch
from torch import nn

from histolumen.encoders.batchnorm import Case, CaseBatchNorm, case_of, split_statistics

WHOLE = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Sequential(nn.BatchNorm2d(4)))


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("statistics", ["shared", "separate"])
def test_whole_images_are_treated_as_by_the_plain_layer(statistics, mode):
    plain, split = network().train(mode), network()
    split_statistics(split, statistics)
    split.train(mode)
    assert torch.allclose(plain(WHOLE), split(WHOLE), atol=1e-6)
    assert torch.allclose(plain[1].running_mean, split[1].norm.running_mean)


def test_all_layers_are_replaced_and_parameters_kept():
    split = network()
    before = sum(p.numel() for p in split.parameters())
    split_statistics(split, "separate")
    assert sum(isinstance(m, CaseBatchNorm) for m in split.modules()) == 2
    assert sum(p.numel() for p in split.parameters()) == before


def test_separate_statistics_do_not_mix():
    layer = CaseBatchNorm(nn.BatchNorm2d(3), "separate").train()
    with case_of(Case.FOREGROUND):
        layer(WHOLE + 10)
    with case_of(Case.BACKGROUND):
        layer(WHOLE - 10)
    assert torch.all(layer.foreground_mean > 0.5)
    assert torch.all(layer.background_mean < -0.5)
    assert torch.all(layer.norm.running_mean == 0)


def test_shared_statistics_see_every_case():
    layer = CaseBatchNorm(nn.BatchNorm2d(3), "shared").train()
    for case, images in ((Case.FOREGROUND, WHOLE), (Case.BACKGROUND, WHOLE + 10)):
        with case_of(case):
            layer(images)
    two_passes = nn.BatchNorm2d(3).train()
    two_passes(WHOLE)
    two_passes(WHOLE + 10)
    assert torch.allclose(layer.norm.running_mean, two_passes.running_mean, atol=1e-6)


def test_frozen_statistics_never_move_but_affine_weights_learn():
    layer = CaseBatchNorm(nn.BatchNorm2d(3), "frozen").train()
    before = copy.deepcopy(layer.norm.running_mean)
    layer(WHOLE + 5).sum().backward()
    assert torch.equal(layer.norm.running_mean, before)
    assert layer.norm.weight.grad is not None


def test_evaluation_uses_the_statistics_of_its_case():
    layer = CaseBatchNorm(nn.BatchNorm2d(3), "separate").eval()
    layer.foreground_mean.fill_(2.0)
    with case_of(Case.FOREGROUND):
        inside = layer(WHOLE)
    assert torch.allclose(inside, layer(WHOLE) - 2.0, atol=1e-4)


def test_a_placeholder_is_not_normalised():
    layer = CaseBatchNorm(nn.BatchNorm2d(3), "shared").train()
    with case_of(None):
        assert torch.equal(layer(WHOLE + 5), WHOLE + 5)
    assert torch.all(layer.norm.running_mean == 0)
