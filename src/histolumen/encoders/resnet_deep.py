"""The paper's backbone, registered with timm."""

from typing import Any

from histolumen.vision import timm

ResNet = timm.models.resnet.ResNet
default_cfgs = timm.models.generate_default_cfgs(  # timm reads this name
    {"resnet18_deep.untrained": {"mean": (0.5,) * 3, "std": (0.5,) * 3, "first_conv": "conv1.0", "classifier": "fc"}}
)


@timm.models.register_model
def resnet18_deep(pretrained: bool = False, **options: Any) -> ResNet:
    """A ResNet18 whose stem is three 3x3 convolutions (64 stride 2, 64, 128)."""
    shape = {"block": timm.models.resnet.BasicBlock, "layers": (2, 2, 2, 2), "stem_type": "deep", "stem_width": 64}
    return timm.models.build_model_with_cfg(ResNet, "resnet18_deep", pretrained, **shape, **options)
