"""Masks proposed before training: from real features, for images of any size, without a change to the network."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from build import tiny_method

from histolumen.methods import proposals
from histolumen.methods.base import Batch
from histolumen.methods.maxmin import MaxMinSettings
from histolumen.nets.backbones import BackboneSettings, build_backbone

TAUGHT = {"mask_from": "decoder", "grouping": 1.0, "classifier_scale": 1.0}


@dataclass
class Pictures:
    """Textured discs on a plain ground, of two colours for the two labels, of several sizes."""

    count: int = 8
    seed: int = 0
    labels: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.labels = torch.arange(self.count) % 2
        self.asked = []
        self.said = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.asked.append(index)
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


def test_what_looks_different_and_tells_the_label_is_proposed(backbone):
    pictures = Pictures()
    found = proposals.group_images(backbone, pictures)
    for index, proposal in enumerate(found):
        truth = torch.nn.functional.interpolate(
            pictures.disc(index)[None, None].float(), size=proposal.shape, mode="area"
        )[0, 0]
        assert proposal[truth > 0.9].mean() > proposal[truth < 0.1].mean() + 0.2
        assert proposal.min() >= 0
        assert proposal.max() <= 1


def test_many_images_are_not_all_looked_at_twice(backbone, monkeypatch):
    monkeypatch.setattr(proposals, "_MAX_IMAGES", 5)
    pictures = Pictures()
    assert len(proposals.group_images(backbone, pictures)) == 8
    assert sorted(pictures.asked) == list(range(8))  # the five that the groups were found in are remembered


def test_features_that_do_not_fit_into_memory_are_looked_at_again(backbone, monkeypatch):
    whole = proposals.group_images(backbone, Pictures(6))
    monkeypatch.setattr(proposals, "_ROOM", 0)
    pictures = Pictures(6)
    again = proposals.group_images(backbone, pictures)
    assert len(pictures.asked) == 12
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    assert len(pictures.said) == 2  # views
    assert "cross-entropy of the labels" in pictures.said[0]


def test_a_sample_of_many_images_has_some_of_each_class(monkeypatch):
    monkeypatch.setattr(proposals, "_MAX_IMAGES", 6)
    labels = torch.tensor([0] * 50 + [1] * 3 + [2] * 2)
    chosen = proposals._some_of_each(labels, np.random.default_rng(0))
    assert len(set(chosen)) == 6
    assert sorted(labels[chosen].tolist()) == [0, 0, 1, 1, 2, 2]


def test_proposing_changes_no_weight_no_statistic_and_no_mode(backbone):
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    backbone.train()
    proposals.group_images(backbone, Pictures(4))
    assert backbone.training
    backbone.eval()
    assert all(torch.equal(before[name], value) for name, value in backbone.state_dict().items())


# --- Max-Min with proposals


def test_only_grouping_asks_for_proposals():
    assert not tiny_method("maxmin").proposes(0)
    taught = tiny_method("maxmin", **TAUGHT)
    assert [taught.proposes(epoch) for epoch in range(4)] == [True, False, False, False]
    renewing = tiny_method("maxmin", **TAUGHT, self_training=2)
    assert [renewing.proposes(epoch) for epoch in range(5)] == [True, False, True, False, True]


def test_the_mask_learns_what_was_proposed():
    method = tiny_method("maxmin", **TAUGHT, background="none").train()
    images = torch.rand(2, 3, 64, 64)
    images[..., :32] *= 0.2
    wanted = torch.zeros(2, 1, 64, 64)
    wanted[..., :32] = 1
    batch = Batch(images, torch.tensor([0, 1]), proposals=wanted)
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3)
    for _ in range(25):
        optimizer.zero_grad()
        torch.stack(list(method.losses(batch).terms.values())).sum().backward()
        optimizer.step()
    mask = method.predict(images).mask  # still in training mode: the statistics of this batch
    assert mask[..., :24].mean() > 0.7
    assert mask[..., 40:].mean() < 0.3


def test_proposals_are_renewed_only_where_the_classifier_agrees():
    method = tiny_method("maxmin", **TAUGHT, self_training=1).eval()
    pictures = Pictures(2)
    first = [torch.full((6, 6), 0.9), torch.full((6, 7), 0.9)]
    said = method.predict(pictures[0]).probs.argmax().item()
    pictures.labels = torch.tensor([said, 1 - method.predict(pictures[1]).probs.argmax().item()])
    renewed = method.propose(pictures, first)
    assert renewed[1] is first[1]
    assert renewed[0].shape == (24, 24)
    mean = method.predict(pictures[0]).mask.mean()
    assert renewed[0].mean() == pytest.approx(0.45 + mean.item() / 2, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grouping": 1}, "mask_from=decoder"),
        ({"mask_from": "decoder", "self_training": 2}, "method.grouping"),
        ({"mask_from": "decoder", "foreground": False, "background": "none", "size_barrier": False}, "no term would"),
    ],
)
def test_parts_that_need_each_other_say_so(settings, message):
    with pytest.raises(ValueError, match=message):
        MaxMinSettings(**settings)


def test_proposals_that_got_lost_are_an_error():
    with pytest.raises(ValueError, match="needs batches with proposals"):
        tiny_method("maxmin", **TAUGHT).losses(Batch(torch.rand(2, 3, 64, 64), torch.tensor([0, 1])))


def test_a_decoder_needs_no_classifier():
    method = tiny_method("maxmin", mask_from="decoder", decoder_stride=8, foreground=False, background="none").eval()
    output = method.predict(torch.rand(2, 3, 33, 81))
    assert output.mask.shape == (2, 1, 33, 81)
    assert torch.allclose(output.probs.sum(1), torch.ones(2), atol=1e-5)


def test_everything_off_is_the_papers_method():
    names = {name.split(".")[0] for name, _ in tiny_method("maxmin").named_parameters()}
    assert names == {"backbone", "localizer", "classifier"}
    terms = tiny_method("maxmin").losses(Batch(torch.rand(2, 3, 64, 64), torch.tensor([0, 1]))).terms
    assert set(terms) == {"localizer", "size", "foreground", "background"}
