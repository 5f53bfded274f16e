"""Learning rates computed by hand."""

import pytest
import torch

from histolumen.config import TrainSettings
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.engine.optim import build_optimizer, learning_rate, set_learning_rate
from histolumen.methods.maxmin import MaxMin, MaxMinSettings


def test_the_papers_steps():
    settings = TrainSettings()
    assert learning_rate(0, settings) == 1e-3
    assert learning_rate(9, settings) == 1e-3
    assert learning_rate(10, settings) == pytest.approx(0.9e-3)
    assert learning_rate(79, settings) == pytest.approx(1e-3 * 0.9**7)


def test_the_floor_holds():
    assert learning_rate(10_000, TrainSettings(lr_floor=1e-7)) == 1e-7


def test_milestones():
    settings = TrainSettings(schedule="multistep", lr_milestones=(10, 15), lr_factor=0.1)
    assert [learning_rate(e, settings) for e in (9, 10, 14, 15)] == pytest.approx([1e-3, 1e-4, 1e-4, 1e-5])


def test_constant():
    assert learning_rate(500, TrainSettings(schedule="constant")) == 1e-3


def test_half_a_cosine():
    settings = TrainSettings(schedule="cosine", epochs=4, lr=1.0)
    assert [learning_rate(e, settings) for e in range(4)] == pytest.approx([1.0, 0.853553, 0.5, 0.146447], abs=1e-5)
    assert learning_rate(4, settings) == settings.lr_floor


def test_adamw_has_the_settings_of_the_recipe():
    method = MaxMin(MaxMinSettings(), build_backbone(BackboneSettings(name="test_resnet", weights="none")), 2)
    optimizer = build_optimizer(method, TrainSettings(optimizer="adamw", weight_decay=0.01, head_lr_factor=10))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-3, 1e-2])
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.01}


def test_heads_learn_faster():
    torch.manual_seed(0)
    method = MaxMin(MaxMinSettings(), build_backbone(BackboneSettings(name="test_resnet", weights="none")), 2)
    optimizer = build_optimizer(method, TrainSettings(head_lr_factor=10))
    set_learning_rate(optimizer, 1e-4)
    backbone, heads = optimizer.param_groups
    assert (backbone["lr"], heads["lr"]) == pytest.approx((1e-4, 1e-3))
    assert {id(p) for p in heads["params"]} == {
        id(p) for p in [*method.localizer.parameters(), *method.classifier.parameters()]
    }
    assert len(backbone["params"]) + len(heads["params"]) == len(list(method.parameters()))
    assert backbone["nesterov"]
