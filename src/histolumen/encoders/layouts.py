"""Translation of tensor names from weights files of other libraries to timm."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_TRANSFORMERS = {
    "embeddings.cls_token": "cls_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "encoder.layer.": "blocks.",
    "attention.output.dense": "attn.proj",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "layernorm.": "norm.",
}
_SEPARATE = "attention.attention."
_QUERY = f"{_SEPARATE}query"


def from_transformers_dinov2(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """DINOv2 of the transformers library; its query, key and value weights are fused into one projection."""
    if not any(_QUERY in name for name in stored):  # already in timm's layout
        return dict(stored)
    fused = {name: value for name, value in stored.items() if _SEPARATE not in name}
    for name in stored:
        parts = [
            stored[other] for part in ("query", "key", "value") if (other := name.replace("query", part)) in stored
        ]
        if _QUERY in name and len(parts) == 3:
            fused[name.replace(_QUERY, "attn.qkv")] = torch.cat(parts)
    return {_timm_name(name): value for name, value in fused.items()}


def _timm_name(name: str) -> str:
    for theirs, ours in _TRANSFORMERS.items():
        name = name.replace(theirs, ours)
    return name


def from_early_swin(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Swin of timm before 0.9, where downsampling ended a stage; now it begins the next one."""
    if not any("layers.0.downsample" in name for name in stored):
        return dict(stored)
    return {
        re.sub(r"layers\.(\d+)\.downsample", lambda match: f"layers.{int(match[1]) + 1}.downsample", name): value
        for name, value in stored.items()
    }
