"""The catalogue of encoders: published sizes, loading of weights files, and errors if these do not fit."""

import re
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.catalogue import CATALOGUE, HISTOLOGY
from histolumen.encoders.families import Architecture
from histolumen.encoders.listing import HEADINGS, facts, weights_status
from histolumen.errors import WeightsError
from histolumen.vision import timm

SIZES = {  # millions of weights, features, patch, as their authors publish them
    "uni": (303, 1024, 16),
    "uni2-h": (681, 1536, 14),
    "virchow2": (631, 1280, 14),
    "phikon-v2": (303, 1024, 16),
    "h-optimus-0": (1135, 1536, 14),
    "prov-gigapath": (1135, 1536, 16),
    "lunit-dino-s16": (22, 384, 16),
    "lunit-dino-s8": (22, 384, 8),
}
TRANSFORMERS = [name for name in CATALOGUE if "patch" in CATALOGUE[name].timm_name and name != "ctranspath"]


@pytest.fixture
def shallow(monkeypatch):
    """Shrink an entry to two narrow blocks: the tensor names stay the same, but the network is small."""

    def shrink(name: str) -> None:
        entry = CATALOGUE[name]
        options = {**entry.options, "depth": 2, "embed_dim": 48, "num_heads": 3}
        monkeypatch.setitem(CATALOGUE, name, replace(entry, options=options))

    return shrink


def random_weights(name: str) -> dict[str, torch.Tensor]:
    entry = CATALOGUE[name]
    network = timm.create_model(entry.timm_name, num_classes=0, **entry.options)
    return {key: torch.randn_like(value) if value.is_floating_point() else value
            for key, value in network.state_dict().items()}  # fmt: skip


def in_transformers_layout(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = {
        "cls_token": "embeddings.cls_token",
        "pos_embed": "embeddings.position_embeddings",
        "patch_embed.proj": "embeddings.patch_embeddings.projection",
        "blocks.": "encoder.layer.",
        "attn.proj": "attention.output.dense",
        "ls1.gamma": "layer_scale1.lambda1",
        "ls2.gamma": "layer_scale2.lambda1",
    }
    renamed = {}
    for own, value in stored.items():
        key = re.sub(r"^norm\.", "layernorm.", own)
        for ours, theirs in names.items():
            key = key.replace(ours, theirs)
        if "attn.qkv" in key:
            for part, third in zip(("query", "key", "value"), value.chunk(3), strict=True):
                renamed[key.replace("attn.qkv", f"attention.attention.{part}")] = third
        else:
            renamed[key] = value
    return {**renamed, "embeddings.mask_token": torch.zeros(1, 48)}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_published(name):
    millions, width, patch = SIZES[name]
    entry = CATALOGUE[name]
    architecture = Architecture(name, entry.timm_name, entry.options)
    assert abs(architecture.parameters / 1e6 - millions) <= max(1, 0.01 * millions)
    assert (architecture.width, set(architecture.strides)) == (width, {patch})


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformers_file_is_loaded(name, suffix, shallow, tmp_path):
    shallow(name)
    stored = random_weights(name)
    saved = in_transformers_layout(stored) if name == "phikon-v2" else stored
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save(saved, path)
    else:
        safetensors.torch.save_file({key: value.contiguous() for key, value in saved.items()}, path)
    backbone = build_backbone(BackboneSettings(name=name, weights=str(path))).eval()
    loaded = backbone.trunk.network.state_dict()
    assert all(torch.equal(loaded[key], stored[key]) for key in loaded)
    assert {"pos_embed", "cls_token"} & set(loaded) == {"pos_embed", "cls_token"} & set(stored)
    assert f"{backbone.stride}" in facts(name)[4]
    with torch.no_grad():
        assert backbone(torch.rand(1, 3, 3 * backbone.stride, 40)).shape[:3] == (1, 48, 3)


def test_phikons_queries_keys_and_values_become_one_projection(shallow, tmp_path):
    shallow("phikon-v2")
    saved = in_transformers_layout(random_weights("phikon-v2"))
    torch.save(saved, tmp_path / "phikon.pth")
    backbone = build_backbone(BackboneSettings(name="phikon-v2", weights=str(tmp_path / "phikon.pth")))
    fused = backbone.trunk.network.blocks[1].attn.qkv.weight
    assert torch.equal(fused[48:96], saved["encoder.layer.1.attention.attention.key.weight"])
    del saved["encoder.layer.1.attention.attention.key.weight"]
    torch.save(saved, tmp_path / "phikon.pth")
    with pytest.raises(WeightsError, match=r"lacks 1 of .*blocks\.1\.attn\.qkv\.weight"):
        build_backbone(BackboneSettings(name="phikon-v2", weights=str(tmp_path / "phikon.pth")))


@pytest.mark.parametrize("early", [True, False])
def test_ctranspath_is_a_swin_with_a_convolutional_stem(early, tmp_path):
    """The published file was saved by an early timm, where downsampling ended a stage."""
    stored = random_weights("ctranspath")
    assert stored["patch_embed.proj.3.weight"].shape == (24, 12, 3, 3)
    saved = stored
    if early:
        shift = lambda match: f"layers.{int(match[1]) - 1}.downsample"  # noqa: E731
        saved = {re.sub(r"layers\.(\d)\.downsample", shift, key): value for key, value in stored.items()}
        assert "layers.0.downsample.norm.weight" in saved
    torch.save({"model": saved}, tmp_path / "ctranspath.pth")
    backbone = build_backbone(BackboneSettings(name="ctranspath", weights=str(tmp_path / "ctranspath.pth"))).eval()
    loaded = backbone.trunk.network.state_dict()
    assert torch.equal(loaded["layers.2.downsample.norm.weight"], stored["layers.2.downsample.norm.weight"])
    with torch.no_grad():
        assert backbone(torch.rand(1, 3, 64, 96)).shape == (1, 768, 2, 3)


def test_a_file_of_another_encoder_is_refused(shallow, tmp_path):
    shallow("uni")
    torch.save(random_weights("uni"), tmp_path / "uni.pth")
    shallow("virchow2")
    with pytest.raises(WeightsError, match=r"uni\.pth: lacks .*reg_token.* choose the backbone these weights"):
        build_backbone(BackboneSettings(name="virchow2", weights=str(tmp_path / "uni.pth")))
    shallow("lunit-dino-s8")
    torch.save(random_weights("lunit-dino-s8"), tmp_path / "s8.pth")
    shallow("lunit-dino-s16")
    with pytest.raises(WeightsError, match=r"s8\.pth: has another shape for .*pos_embed"):
        build_backbone(BackboneSettings(name="lunit-dino-s16", weights=str(tmp_path / "s8.pth")))


def test_the_error_about_gated_weights_lists_the_options(monkeypatch, tmp_path, shallow):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    shallow("uni")
    with pytest.raises(WeightsError, match=r"gated .*request access at .*MahmoodLab/UNI .*log in .*weights=FILE"):
        build_backbone(BackboneSettings(name="uni"))


def test_scaling_is_that_of_the_encoder(shallow):
    shallow("h-optimus-0")
    backbone = build_backbone(BackboneSettings(name="h-optimus-0", weights="none"))
    assert backbone.mean.flatten().tolist() == pytest.approx([0.707223, 0.578729, 0.703617])
    assert backbone.std.flatten().tolist() == pytest.approx([0.211883, 0.230117, 0.177517])


def test_the_table_shows_where_weights_are(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert weights_status("efficientnet_lite0", CATALOGUE["efficientnet_lite0"]) == "here"
    assert weights_status("resnet18_deep", CATALOGUE["resnet18_deep"]) == "needs a file"
    assert weights_status("uni", CATALOGUE["uni"]) == "needs a file, or access on the hub"
    assert weights_status("phikon-v2", CATALOGUE["phikon-v2"]) == "needs the hub or a file"
    cached = tmp_path / "models--owkin--phikon-v2"
    (cached / "snapshots" / "a").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a")
    (cached / "snapshots" / "a" / "model.safetensors").write_bytes(b"")
    assert weights_status("phikon-v2", CATALOGUE["phikon-v2"]) == "here"


def test_every_row_has_a_cell_for_each_heading():
    assert all(len(facts(name)) == len(HEADINGS) - 1 for name in CATALOGUE)
    assert all(CATALOGUE[name].licence for name in HISTOLOGY)
