"""Layout and compilation: faster ways to compute the same."""

import shutil

import pytest
import torch
from build import tiny_method

from histolumen.config import TrainSettings
from histolumen.data.batch import Batch
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.engine.arithmetic import compile_backbone, memory_layout
from histolumen.engine.train import train
from histolumen.errors import ConfigError
from histolumen.methods.maxmin import MaxMin, MaxMinSettings


def on(backbone: str) -> MaxMin:
    return MaxMin(MaxMinSettings(), build_backbone(BackboneSettings(name=backbone, weights="none")), 2)


@pytest.mark.parametrize(
    ("backbone", "settings", "last"),
    [
        ("efficientnet_lite0", {}, True),
        ("resnet18", {}, False),
        ("resnet18", {"precision": "bf16"}, True),
        ("resnet18", {"layout": "channels_last"}, True),
        ("efficientnet_lite0", {"layout": "channels_first", "precision": "bf16"}, False),
    ],
)
def test_the_layout_follows_the_network_unless_it_is_set(backbone, settings, last):
    expected = torch.channels_last if last else torch.contiguous_format
    assert memory_layout(on(backbone), TrainSettings(**settings)) == expected


def test_both_layouts_train_the_same_up_to_rounding(tiny_manifest, tiny_config, tmp_path):
    from histolumen.engine.checkpoint import load_model

    settings = ("method.dropout=0", "train.epochs=1")
    for layout in ("channels_last", "channels_first"):
        train(tiny_config(f"train.layout={layout}", *settings), tiny_manifest, tmp_path / layout)
    first, second = (
        load_model(tmp_path / layout / "last")[0].state_dict() for layout in ("channels_last", "channels_first")
    )
    assert all(torch.allclose(first[name].float(), second[name].float(), atol=1e-3) for name in first)


def test_a_run_in_channels_last_resumes_exactly(tiny_manifest, tiny_config, tmp_path):
    def run(out: str, epochs: int, *, resume: bool = False) -> bytes:
        config = tiny_config("train.layout=channels_last", f"train.epochs={epochs}")
        train(config, tiny_manifest, tmp_path / out, resume=resume)
        return (tmp_path / out / "last" / "model.safetensors").read_bytes()

    run("parts", 1)
    assert run("parts", 3, resume=True) == run("whole", 3)


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"no C\+\+ compiler found.*apt install g\+\+"):
        compile_backbone(on("resnet18").backbone)


def test_batchnorm_that_learns_its_statistics_is_not_compiled(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/g++")
    with pytest.raises(ConfigError, match=r"backbone\.statistics=frozen"):
        compile_backbone(on("resnet18").backbone)


@pytest.mark.slow
def test_a_compiled_backbone_computes_x_and_its_regions_as_before(monkeypatch):
    """Traced in full without generating code: X alone, then X+ and X- as parts of one batch."""
    import torch._dynamo

    plain, compiled = (tiny_method("maxmin", statistics="frozen", dropout=0.0).train() for _ in range(2))
    monkeypatch.setattr(
        type(compiled.backbone.trunk),
        "compile",
        lambda self, **options: torch.nn.Module.compile(self, backend="aot_eager", fullgraph=True, **options),
        raising=False,
    )
    names = list(compiled.state_dict())
    compile_backbone(compiled.backbone)
    batch = Batch(torch.rand(2, 3, 64, 64), torch.arange(2))
    terms, traced = plain.losses(batch).terms, compiled.losses(batch).terms
    for name, value in terms.items():
        assert torch.allclose(value, traced[name], atol=1e-6), name
    sum(traced.values()).backward()
    assert names == list(compiled.state_dict())
    assert all(
        torch.allclose(a.float(), b.float(), atol=1e-6)
        for a, b in zip(plain.buffers(), compiled.buffers(), strict=True)
    )
    assert all(parameter.grad is not None for parameter in compiled.parameters())
    torch._dynamo.reset()
