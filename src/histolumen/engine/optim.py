"""Optimiser and learning rate. The rate is a function of the epoch, so it has no state to save."""

import math

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from histolumen.config import TrainSettings
from histolumen.methods.base import Method


def build_optimizer(method: Method, settings: TrainSettings) -> Optimizer:
    """SGD with Nesterov momentum, or AdamW; heads have `head_lr_factor` times the rate of the backbone."""
    backbone_ids = {id(parameter) for parameter in method.backbone.parameters()}
    trained = [parameter for parameter in method.parameters() if parameter.requires_grad]  # not those of frozen stages
    backbone = [parameter for parameter in trained if id(parameter) in backbone_ids]
    heads: list[nn.Parameter] = [parameter for parameter in trained if id(parameter) not in backbone_ids]
    groups = [
        {"params": backbone, "lr": settings.lr, "factor": 1.0},
        {"params": heads, "lr": settings.lr * settings.head_lr_factor, "factor": settings.head_lr_factor},
    ]
    if settings.optimizer == "adamw":
        return AdamW(groups, betas=(settings.momentum, 0.999), weight_decay=settings.weight_decay)
    return SGD(groups, momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=settings.momentum > 0)


def learning_rate(epoch: int, settings: TrainSettings) -> float:
    """Learning rate of the backbone in `epoch`, counted from 0."""
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "cosine":
        share = (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
    elif settings.schedule == "step":
        share = settings.lr_factor ** (epoch // settings.lr_every)
    else:
        share = settings.lr_factor ** sum(epoch >= milestone for milestone in settings.lr_milestones)
    return max(settings.lr * share, min(settings.lr, settings.lr_floor))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the rate of all parameter groups from that of the backbone."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
