"""Methods on timm's smallest network, for tests."""

import torch

from histolumen.methods.base import Method, build_method, settings_of
from histolumen.nets.backbones import BackboneSettings, build_backbone


def tiny_method(name: str, classes: int = 2, statistics: str = "shared", **options: object) -> Method:
    torch.manual_seed(7)
    backbone = BackboneSettings(name="test_resnet", weights="none", output_stride=16, statistics=statistics)
    method = build_method(settings_of(name)(**options), build_backbone(backbone), classes)
    method.begin(epochs=10, classes=[f"class {k}" for k in range(classes)])
    return method
