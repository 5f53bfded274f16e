"""Mask proposals before training: from real features, for images of any size, without changing the network."""

import re
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from build import tiny_method

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.methods.maxmin import MaxMinSettings
from histolumen.proposals import propose as proposals

WITH_PROPOSALS = {"mask_from": "decoder", "grouping": 1.0, "classifier_scale": 1.0}


@dataclass
class Pictures:
    """Images of several sizes with a textured disc on plain background; the label is the colour of the disc."""

    count: int = 8
    seed: int = 0
    labels: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.labels = torch.arange(self.count) % 2
        self.loaded = []
        self.lines = []
        self.counted = []
        self.classes = ["benign", "malignant"]

    def track(self, items, description: str):
        for item in items:
            yield item
            self.counted.append(description)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.loaded.append(index)
        generator = torch.Generator().manual_seed(index)
        image = 0.8 + 0.05 * torch.randn(1, 3, 96, 96 + 16 * (index % 3), generator=generator)
        texture = 0.4 * torch.rand(1, 3, *image.shape[2:], generator=generator)
        texture[:, int(self.labels[index])] += 0.3
        return torch.where(self.disc(index), texture, image).clamp(0, 1)

    def disc(self, index: int) -> torch.Tensor:
        down, across = torch.meshgrid(torch.arange(96), torch.arange(96 + 16 * (index % 3)), indexing="ij")
        return (down - 40) ** 2 + (across - 30 - 4 * index) ** 2 < 26**2


@pytest.fixture(scope="module")
def backbone():
    return build_backbone(BackboneSettings(name="efficientnet_lite0", output_stride=16)).eval()


def test_the_region_that_depends_on_the_label_is_proposed(backbone):
    pictures = Pictures()
    for index, proposal in enumerate(proposals.propose_masks(backbone, pictures)):
        truth = torch.nn.functional.interpolate(
            pictures.disc(index)[None, None].float(), size=proposal.shape, mode="area"
        )[0, 0]
        assert proposal[truth > 0.9].mean() > proposal[truth < 0.1].mean() + 0.2
        assert proposal.min() >= 0
        assert proposal.max() <= 1


def test_images_are_counted_and_the_result_described(backbone):
    pictures = Pictures()
    proposals.propose_masks(backbone, pictures)
    assert [pictures.counted.count(each) for each in dict.fromkeys(pictures.counted)] == [8, 2, 8]
    first, second = (line.strip() for line in pictures.lines)
    assert re.fullmatch(
        r"tissue split in two: the darker(, bluer|, redder)? part \(\d+ % of the tissue\) tells benign from malignant "
        r"more surely, so it is taken as what decides",
        first,
    )  # the discs are darker than the plain background, half of them bluer
    assert re.fullmatch(
        r"probability .*: 0\.\d\d from this part, 0\.\d\d from the rest; .* agree on \d+ % of it", second
    )


def test_features_of_clustered_images_are_cached(backbone, monkeypatch):
    monkeypatch.setattr(proposals, "_MAX_IMAGES", 5)
    pictures = Pictures()
    assert len(proposals.propose_masks(backbone, pictures)) == 8
    assert sorted(pictures.loaded) == list(range(8))  # the five that were clustered are not loaded again


def test_features_that_do_not_fit_into_the_cache_are_computed_again(backbone, monkeypatch):
    whole = proposals.propose_masks(backbone, Pictures(6))
    monkeypatch.setattr(proposals, "_CACHE_BYTES", 0)
    pictures = Pictures(6)
    again = proposals.propose_masks(backbone, pictures)
    assert len(pictures.loaded) == 12
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))


def test_a_sample_of_many_images_is_balanced(monkeypatch):
    monkeypatch.setattr(proposals, "_MAX_IMAGES", 6)
    labels = torch.tensor([0] * 50 + [1] * 3 + [2] * 2)
    chosen = proposals._balanced_sample(labels, np.random.default_rng(0))
    assert len(set(chosen)) == 6
    assert sorted(labels[chosen].tolist()) == [0, 0, 1, 1, 2, 2]


def test_proposing_changes_no_weight_no_statistic_and_no_mode(backbone):
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    backbone.train()
    proposals.propose_masks(backbone, Pictures(4))
    assert backbone.training
    backbone.eval()
    assert all(torch.equal(before[name], value) for name, value in backbone.state_dict().items())


# --- Max-Min with proposals


def test_proposals_are_requested_only_with_grouping():
    assert not tiny_method("maxmin").wants_proposals(0)
    once = tiny_method("maxmin", **WITH_PROPOSALS)
    assert [once.wants_proposals(epoch) for epoch in range(4)] == [True, False, False, False]
    repeatedly = tiny_method("maxmin", **WITH_PROPOSALS, self_training=2)
    assert [repeatedly.wants_proposals(epoch) for epoch in range(5)] == [True, False, True, False, True]


@pytest.mark.parametrize(("mask_from", "low", "high"), [("decoder", 0.3, 0.7), ("cam", 0.5, 0.6)])
def test_the_mask_learns_the_proposals(mask_from, low, high):
    """By Eq. 8 a mask of class maps has no values below 0.3, and this one has two positions a side."""
    method = tiny_method("maxmin", **WITH_PROPOSALS | {"mask_from": mask_from}, background="none").train()
    images = torch.rand(2, 3, 64, 64)
    images[..., :32] *= 0.2
    proposed = torch.zeros(2, 1, 64, 64)
    proposed[..., :32] = 1
    batch = Batch(images, torch.tensor([0, 1]), proposals=proposed)
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3)
    for _ in range(25):
        optimizer.zero_grad()
        torch.stack(list(method.losses(batch).terms.values())).sum().backward()
        optimizer.step()
    mask = method(images).soft_mask  # still in training mode: uses the statistics of this batch
    assert mask[..., :24].mean() > high
    assert mask[..., 40:].mean() < low


def test_proposals_are_updated_only_if_the_predicted_class_is_right():
    method = tiny_method("maxmin", **WITH_PROPOSALS, self_training=1).eval()
    pictures = Pictures(2)
    first = [torch.full((6, 6), 0.9), torch.full((6, 7), 0.9)]
    predicted = method(pictures[0]).probs.argmax().item()
    pictures.labels = torch.tensor([predicted, 1 - method(pictures[1]).probs.argmax().item()])
    updated = method.propose(pictures, first)
    assert updated[1] is first[1]
    assert updated[0].shape == (24, 24)
    mean = method(pictures[0]).soft_mask.mean()
    assert updated[0].mean() == pytest.approx(0.45 + mean.item() / 2, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_from": "decoder", "self_training": 2}, "method.grouping"),
        ({"mask_from": "decoder", "foreground": False, "background": "none", "size_barrier": False}, "no term would"),
    ],
)
def test_settings_that_need_each_other_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        MaxMinSettings(**settings)


def test_missing_proposals_are_an_error():
    with pytest.raises(ValueError, match="needs batches with proposals"):
        tiny_method("maxmin", **WITH_PROPOSALS).losses(Batch(torch.rand(2, 3, 64, 64), torch.tensor([0, 1])))


def test_a_decoder_works_without_a_classifier():
    method = tiny_method("maxmin", mask_from="decoder", decoder_stride=8, foreground=False, background="none").eval()
    output = method(torch.rand(2, 3, 33, 81))
    assert output.soft_mask.shape == (2, 1, 33, 81)
    assert torch.allclose(output.probs.sum(1), torch.ones(2), atol=1e-5)


def test_without_extensions_it_is_the_papers_method():
    names = {name.split(".")[0] for name, _ in tiny_method("maxmin").named_parameters()}
    assert names == {"backbone", "localizer", "classifier"}
    terms = tiny_method("maxmin").losses(Batch(torch.rand(2, 3, 64, 64), torch.tensor([0, 1]))).terms
    assert set(terms) == {"localizer", "size", "foreground", "background"}


def test_tissue_is_described_at_three_magnifications(backbone, monkeypatch):
    seen = []
    original = proposals._flip_means
    monkeypatch.setattr(
        proposals, "_flip_means", lambda net, image: seen.append(image.shape[2:]) or original(net, image)
    )
    with torch.no_grad():
        all_three, without_own = proposals.tissue_views(backbone, Pictures()[0])
    assert seen == [(144, 144), (96, 96), (48, 48)]
    assert all_three.shape[1:] == without_own.shape[1:] == (6, 6)
    enlarged, own, reduced = 80 + 112, 80 + 112, 112  # channels of the two grouping layers, and of the last
    assert len(all_three) == enlarged + own + reduced
    assert torch.equal(without_own, torch.cat([all_three[:enlarged], all_three[-reduced:]]))


def test_another_backbone_can_be_clustered(backbone):
    """The proposals are those of the named network, which is not part of the trained one."""
    pictures = Pictures()
    expected = proposals.propose_masks(backbone, pictures)
    method = tiny_method("maxmin", **WITH_PROPOSALS, grouping_backbone="efficientnet_lite0")
    parameters = sum(weights.numel() for weights in tiny_method("maxmin", **WITH_PROPOSALS).parameters())
    for mine, its in zip(method.propose(pictures, None), expected, strict=True):
        assert torch.equal(mine, its)
    assert sum(weights.numel() for weights in method.parameters()) == parameters
    with pytest.raises(ValueError, match=r"set method\.grouping as well"):
        MaxMinSettings(grouping_backbone="efficientnet_lite0")


def test_a_network_that_goes_on_to_coarser_features_is_clustered_by_the_same_ones(backbone):
    whole = build_backbone(BackboneSettings(name="efficientnet_lite0")).eval()
    assert whole.stride == 32
    image = torch.rand(1, 3, 96, 128)
    with torch.no_grad():
        pairs = zip(proposals.tissue_views(backbone, image), proposals.tissue_views(whole, image), strict=True)
        assert all(torch.equal(cut, not_cut) for cut, not_cut in pairs)


def test_a_network_without_own_choice_is_clustered_at_stride_16():
    whole = build_backbone(BackboneSettings(name="test_resnet", weights="none")).eval()
    assert whole.stride == 32
    with torch.no_grad():
        first, _ = proposals.tissue_views(whole, torch.rand(1, 3, 96, 128))
    assert first.shape[1:] == (6, 8)
