"""Every family of encoders: strides, odd image sizes, a training step, and checkpoints of earlier versions."""

import pytest
import torch

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.families import Architecture, family_of
from histolumen.encoders.families.stages import WholeTrunk
from histolumen.errors import ConfigError
from histolumen.methods.maxmin import MaxMin, MaxMinSettings
from histolumen.vision import timm

STRIDED = [
    "test_resnet",
    "test_efficientnet",
    "test_byobnet",
    "test_convnext",
    "test_mambaout",
    "test_nfnet",
    "efficientnet_lite0",
    "mobilenetv3_small_050",
    "pvt_v2_b0",
    "regnetx_002",
]
PATCHES = {"test_vit": 16, "test_vit2": 16, "tiny8": 8, "tiny14": 14}
OPTIONS = {"embed_dim": 48, "depth": 3, "num_heads": 3}


@pytest.fixture(autouse=True)
def _tiny_transformers(monkeypatch):
    """A DINOv2 with registers and patches of 14 pixels and a ViT with patches of 8, small enough for tests."""
    from histolumen.encoders.catalogue import CATALOGUE, Encoder

    monkeypatch.setitem(CATALOGUE, "tiny14", Encoder("vit_small_patch14_reg4_dinov2", {**OPTIONS, "img_size": 70}))
    monkeypatch.setitem(CATALOGUE, "tiny8", Encoder("vit_small_patch8_224", OPTIONS))


def built(name: str, stride: int = 32, **settings):
    return build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride, **settings))


def features_of(backbone, height: int, width: int) -> torch.Tensor:
    with torch.no_grad():
        return backbone.eval()(torch.rand(1, 3, height, width))


def one_step(backbone, **settings) -> dict[str, torch.Tensor]:
    """Loss terms of one Max-Min step, after the backward pass."""
    method = MaxMin(MaxMinSettings(modalities=1, **settings), backbone, 2).train()
    side = 6 * backbone.size_multiple
    terms, _ = method.losses(Batch(torch.rand(2, 3, side, side), torch.tensor([0, 1]), None, None))
    sum(terms.values()).backward()
    if not isinstance(backbone.trunk, WholeTrunk):  # it keeps the unused norm of a head, as its checkpoints contain it
        assert all(weight.grad is not None for weight in backbone.parameters())
    return terms


@pytest.mark.parametrize("stride", [8, 16, 32])
@pytest.mark.parametrize("name", STRIDED)
def test_networks_with_stages_are_cut_at_a_stride_and_train(name, stride):
    backbone = built(name, stride)
    assert backbone.size_multiple == 16
    assert features_of(backbone, 64, 96).shape == (1, backbone.channels, 64 // stride, 96 // stride)
    rows, columns = features_of(backbone, 75, 53).shape[2:]  # any size
    assert rows in {75 // stride, -(-75 // stride)}
    assert columns in {53 // stride, -(-53 // stride)}
    assert all(term.isfinite() for term in one_step(backbone).values())


@pytest.mark.parametrize(("name", "multiple"), [("hrnet_w18_small", 32), ("swin_tiny_patch4_window7_224", 16)])
def test_networks_that_need_a_multiple_are_padded_to_it(name, multiple):
    backbone = built(name, 16)
    assert backbone.size_multiple == multiple
    covered = [-(-side // multiple) * multiple // 16 for side in (75, 53)]
    assert features_of(backbone, 75, 53).shape == (1, backbone.channels, *covered)


def test_a_network_of_fixed_size_may_have_stages_that_accept_any():
    """Only the last stage of EfficientFormer has position embeddings of fixed size."""
    assert features_of(built("efficientformer_l1", 16), 64, 96).shape[2:] == (4, 6)


def test_densenet_is_cut_by_timm_while_it_is_created():
    assert features_of(built("densenet121", 8), 64, 32).shape == (1, 512, 8, 4)


@pytest.mark.parametrize("name", PATCHES)
def test_vision_transformers_have_the_stride_of_their_patches(name):
    patch = PATCHES[name]
    backbone = built(name)
    assert (backbone.stride, backbone.size_multiple, float(backbone.offset)) == (patch, patch, (patch - 1) / 2)
    assert backbone.notes == []  # the default of output_stride needs no note
    assert features_of(backbone, 5 * patch, 3 * patch).shape == (1, backbone.channels, 5, 3)
    assert features_of(backbone, 5 * patch - 3, 3 * patch + 1).shape == (1, backbone.channels, 5, 4)
    assert all(term.isfinite() for term in one_step(backbone).values())
    terms = one_step(backbone, mask_from="decoder", size_unit="fraction")
    assert all(term.isfinite() for term in terms.values())


def test_a_block_of_a_transformer_equals_timms_normalised_output():
    torch.manual_seed(0)
    source = timm.create_model("test_vit", num_classes=0, dynamic_img_size=True).eval()
    images = torch.rand(1, 3, 48, 80)
    with torch.no_grad():
        blocks = source.forward_intermediates(images, norm=True, output_fmt="NCHW", intermediates_only=True)
        for block in (None, 1, -2, -6):
            backbone = built("test_vit", block=block).eval()
            backbone.trunk.network.load_state_dict(source.state_dict(), strict=False)
            assert torch.equal(backbone(images), blocks[-1 if block is None else block])
    assert len(built("test_vit", block=1).trunk.network.blocks) == 2  # the rest is neither stored nor computed


@pytest.mark.parametrize(
    ("name", "block", "problem"),
    [("test_vit", 6, "has blocks 0 to 5"), ("test_vit", -7, "has blocks 0 to 5"), ("test_resnet", 1, "output_stride")],
)
def test_a_block_that_does_not_exist(name, block, problem):
    with pytest.raises(ConfigError, match=f"backbone.block {block}: {name} .*{problem}"):
        built(name, block=block)


def test_settings_without_effect_are_noted():
    notes = built("test_vit", 8, statistics="separate").notes
    assert len(notes) == 2
    assert "backbone.statistics=separate has no effect" in notes[0]
    assert "patches of 16 pixels: backbone.output_stride=8 has no effect" in notes[1]
    assert built("test_resnet", 16, statistics="frozen").notes == []


@pytest.mark.parametrize("name", ["test_resnet", "convnext_atto", "swin_tiny_patch4_window7_224"])
def test_checkpoints_of_earlier_versions_give_the_same_features(name):
    """Earlier versions saved timm's `features_only` networks, whose names join the first two parts."""
    torch.manual_seed(0)
    level = -2  # stride 16
    strides = Architecture(name, name).strides
    earlier = timm.create_model(name, features_only=True, out_indices=(len(strides) + level,)).eval()
    backbone = built(name, 16).eval()
    case_names = {key.replace(".norm.", "."): key for key in backbone.trunk.network.state_dict() if ".norm." in key}
    saved = {f"trunk.network.{case_names.get(k, k)}": v for k, v in earlier.state_dict().items()}
    rest = {k: v for k, v in backbone.state_dict().items() if not k.startswith("trunk.")}
    backbone.load_state_dict(saved | rest)
    images = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        expected = earlier(images)[-1]
        expected = expected if expected.shape[1] == backbone.channels else expected.permute(0, 3, 1, 2)
        assert torch.equal(backbone(images), expected)


@pytest.mark.parametrize(("name", "stride"), [("test_resnet", 32), ("test_efficientnet", 32), ("convnext_atto", 32)])
def test_a_whole_network_gives_timms_last_features(name, stride):
    torch.manual_seed(0)
    backbone = built(name, stride).eval()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(backbone(images), backbone.trunk.network.forward_features(images))


def test_only_efficientnet_lite_is_cut_after_an_activation():
    from histolumen.encoders.families.lite import LiteTrunk

    assert isinstance(built("efficientnet_lite0", 16).trunk, LiteTrunk)
    assert not isinstance(built("test_efficientnet", 16).trunk, LiteTrunk)


def test_the_most_specific_family_is_used():
    assert type(family_of(Architecture("test_vit", "test_vit"))).__name__ == "VisionTransformers"
    assert type(family_of(Architecture("x", "tf_efficientnet_lite0"))).__name__ == "Lite"
    assert type(family_of(Architecture("x", "test_efficientnet"))).__name__ == "Stages"


def test_networks_without_intermediates_are_cut_at_creation_or_refused(monkeypatch):
    """Which networks these are depends on the release of timm, so the property is set here."""
    monkeypatch.setattr(Architecture, "has_intermediates", False)
    assert type(family_of(Architecture("x", "test_resnet"))).__name__ == "Listed"
    with pytest.raises(ConfigError, match="no inner features"):
        family_of(Architecture("x", "test_vit"))
