"""BatchNorm folded into convolutions: the same features, for every case, in every kind of network."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.batchnorm import Case, CaseBatchNorm
from histolumen.encoders.folding import FoldedConv, fold, has_batchnorm
from histolumen.vision import Conv2dSame

IMAGES = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))


def trained(name: str, statistics: str = "shared") -> nn.Module:
    """A network whose statistics are neither 0 nor 1 and differ between cases."""
    torch.manual_seed(1)
    backbone = build_backbone(
        BackboneSettings(name=name, weights="none", output_stride=16, statistics=statistics), load_weights=False
    ).eval()
    with torch.no_grad():
        for module in backbone.modules():
            if isinstance(module, CaseBatchNorm):
                module.norm.weight.uniform_(0.5, 1.5)
                module.norm.bias.uniform_(-0.2, 0.2)
                for case in Case:
                    mean, var = module.running(case)
                    mean.normal_(0, 0.1)
                    var.uniform_(0.5, 1.5)
    return backbone


@torch.no_grad()
def folded_copy(network: nn.Module) -> nn.Module:
    fast = copy.deepcopy(network)
    fold(fast, lambda: fast(IMAGES[:1]))
    return fast


@pytest.mark.parametrize("grad", [False, True], ids=["oneDNN", "with gradients"])
@pytest.mark.parametrize("name", ["test_resnet", "efficientnet_lite0", "resnet18_deep", "mobilenetv3_small_050"])
def test_a_folded_network_has_the_same_features(name, grad):
    network = trained(name)
    fast = folded_copy(network)
    assert not has_batchnorm(fast)
    with torch.set_grad_enabled(grad):
        expected, found = network(IMAGES).detach(), fast(IMAGES)
    assert found.requires_grad == grad
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize(("channels", "kernel", "groups", "is_packed"), [
    (256, 3, 1, True),
    (512, 1, 1, True),
    (64, 3, 1, False),
    (512, 3, 512, False),
])  # fmt: skip
def test_large_kernels_are_packed(channels, kernel, groups, is_packed):
    conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups)
    fast, images = FoldedConv(conv), torch.randn(1, channels, 5, 6)
    with torch.inference_mode():
        assert torch.allclose(fast(images), conv(images), atol=1e-4)
    assert bool(fast._packed) == is_packed


@pytest.mark.parametrize("case", list(Case))
def test_separate_statistics_stay_separate(case):
    network = trained("test_resnet", "separate")
    fast = folded_copy(network)
    with torch.inference_mode():
        expected, found, whole = network(IMAGES, case), fast(IMAGES, case), network(IMAGES)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert torch.allclose(expected, whole, rtol=1e-2) == (case is Case.WHOLE)


@given(
    st.tuples(st.integers(5, 20), st.integers(5, 20)),
    st.sampled_from([1, 3, 5]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
)
def test_the_padding_of_tensorflow_is_the_same_without_a_padded_copy(size, kernel, stride, dilation):
    torch.manual_seed(0)
    conv = Conv2dSame(2, 4, kernel, stride, dilation=dilation, groups=2)
    images = torch.randn(1, 2, *size)
    with torch.inference_mode():
        assert torch.allclose(FoldedConv(conv)(images), conv(images), atol=1e-5)


def test_a_shared_tensor_is_never_written_to():
    network = trained("test_resnet")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    tensors = [*network.parameters(), *network.buffers()]
    fast = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
    fold(fast, lambda: fast(IMAGES))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


class Twice(nn.Module):
    """A convolution whose output goes to two BatchNorm layers."""

    def __init__(self):
        super().__init__()
        self.conv, self.one, self.two = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.standardised = Standardised(4, 4, 1)
        self.last = nn.BatchNorm2d(4)

    def forward(self, x):
        maps = self.conv(x)
        return self.last(self.standardised(self.one(maps) + self.two(maps)))


class Standardised(nn.Conv2d):
    def forward(self, x):
        return nn.functional.conv2d(x, self.weight - self.weight.mean(), self.bias)


def test_layers_that_cannot_be_folded_stay():
    network = Twice().eval()
    nn.init.uniform_(network.one.running_mean)
    nn.init.uniform_(network.last.running_mean)
    fast = copy.deepcopy(network)
    fold(fast, lambda: fast(IMAGES))
    assert isinstance(fast.conv, FoldedConv)
    assert all(isinstance(layer, nn.BatchNorm2d) for layer in (fast.one, fast.two, fast.last))
    with torch.inference_mode():
        assert torch.allclose(fast(IMAGES), network(IMAGES), atol=1e-5)
