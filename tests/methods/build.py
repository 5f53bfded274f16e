"""Build methods on timm's smallest network."""

import torch

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.methods.base import Method, build_method, settings_of


def tiny_method(
    name: str, classes: int = 2, statistics: str = "shared", negative_class: int | None = None, **options: object
) -> Method:
    torch.manual_seed(7)
    backbone = BackboneSettings(name="test_resnet", weights="none", output_stride=16, statistics=statistics)
    method = build_method(settings_of(name)(**options), build_backbone(backbone), classes, negative_class)
    method.on_train_start(epochs=10)
    return method
