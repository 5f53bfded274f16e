"""Negative evidence: images of the negative class have an empty foreground; switched off, nothing changes."""

import pytest
import torch
from build import tiny_method
from contract import MethodContract

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.geometry import FeatureGeometry, enlarge, min_max
from histolumen.methods.maxmin import MaxMin, MaxMinSettings, mask_logits

CLASSES = ["metastatic", "normal"]

CORNERS = FeatureGeometry(16, 0.0, corner_to_corner=True)


def make(classes: list[str] = CLASSES, **settings) -> MaxMin:
    torch.manual_seed(0)
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16))
    method = MaxMin(MaxMinSettings(**{"classifier_scale": 1.0, "dropout": 0.0, **settings}), backbone, len(classes))
    method.negative_class = classes.index("normal")
    return method


def tissue() -> Batch:
    """Four images of plain tissue; the two metastatic ones have a dark nest on the left."""
    torch.manual_seed(1)
    images = 0.8 + 0.05 * torch.randn(4, 3, 64, 64)
    images[:2, :2, 8:56, 4:36] = 0.5 * torch.rand(2, 2, 48, 32)
    return Batch(images.clamp(0, 1), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize(
    "options", [{}, {"grouping": 1}, {"mask_from": "decoder", "grouping": 1}], ids=["cam", "grouped", "decoder"]
)
class TestContract(MethodContract):
    @pytest.fixture
    def make(self, options):
        return lambda classes: tiny_method("maxmin", classes, negative_evidence=1, negative_class=0, **options)


@pytest.mark.parametrize("mask_from", ["cam", "decoder"])
def test_normal_images_become_empty_and_the_others_do_not(mask_from):
    method = make(negative_evidence=1, mask_from=mask_from, background="none").train()
    batch = tissue()
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        torch.stack(list(method.losses(batch).terms.values())).sum().backward()
        optimizer.step()
    with torch.no_grad():
        output = method(batch.images)  # still in training mode: the statistics of this batch
    sizes = output.soft_mask.mean((1, 2, 3))
    assert (sizes[2:] < 0.05).all()
    assert (sizes[:2] > 0.2).all()
    assert output.probs.argmax(1).tolist() == batch.labels.tolist()


def test_the_term_exists_for_every_batch():
    method = make(negative_evidence=2)
    both, one_class = tissue(), Batch(tissue().images[:2], torch.tensor([0, 0]))
    assert method.losses(both).terms["negative_evidence"] > 0
    term = method.losses(one_class).terms["negative_evidence"]
    assert term.item() == 0
    assert term.requires_grad


def test_with_two_classes_the_mask_is_the_map_of_the_positive_one():
    method = make(negative_evidence=1).eval()
    images = tissue().images
    with torch.no_grad():
        maps = method.localizer.maps(method.backbone(method.backbone.normalise(images)))
        assert torch.allclose(
            method(images).soft_mask, torch.sigmoid(5 * enlarge(maps[:, :1], (64, 64), CORNERS)), atol=1e-6
        )


def test_other_classes_are_weighted_by_renormalised_probabilities():
    method = make(["a", "normal", "b"], negative_evidence=1)
    maps, scores = torch.randn(2, 3, 4, 4), torch.randn(2, 3)
    probs = scores.softmax(1)
    share = (probs[:, 0] / (probs[:, 0] + probs[:, 2]))[:, None, None, None]
    by_hand = 5 * enlarge(share * maps[:, :1] + (1 - share) * maps[:, 2:], (8, 8), CORNERS)
    assert torch.allclose(method._cam_logits(maps, scores, torch.zeros(2, 3, 8, 8)), by_hand, atol=1e-5)


def test_a_map_that_is_not_normalised_can_be_empty():
    no_evidence = torch.full((1, 1, 4, 4), -3.0) + 0.1 * torch.rand(1, 1, 4, 4)
    one = torch.ones(1, 1)
    assert torch.sigmoid(mask_logits(no_evidence, one, (8, 8), None, 5.0, CORNERS)).max() < 1e-5
    assert torch.sigmoid(mask_logits(no_evidence, one, (8, 8), 0.15, 5.0, CORNERS)).max() > 0.9


def test_weights_of_earlier_versions_with_the_index_of_the_negative_class_load():
    saved, loaded = (make(negative_evidence=1).eval() for _ in range(2))
    for parameter in loaded.parameters():
        parameter.data.zero_()
    loaded.load_state_dict({**saved.state_dict(), "negative_class": torch.tensor(1)})
    images = tissue().images
    with torch.no_grad():
        assert torch.equal(loaded.eval()(images).soft_mask, saved(images).soft_mask)


@pytest.mark.parametrize("mask_from", ["cam", "decoder"])
def test_proposals_of_normal_images_are_ignored(mask_from):
    method = make(negative_evidence=1, mask_from=mask_from, grouping=1)
    plain = tissue()
    full, empty = (
        Batch(plain.images[2:], plain.labels[2:], proposals=torch.full((2, 1, 64, 64), side)) for side in (1.0, 0.0)
    )
    assert method.losses(full).terms["grouping"].item() == method.losses(empty).terms["grouping"].item() == 0


def test_without_the_term_a_negative_class_leaves_eq_8_to_the_letter():
    literal, paper = make(negative_evidence=0).eval(), make(negative_evidence=0).eval()
    paper.negative_class = None
    with torch.no_grad():
        assert torch.equal(literal(tissue().images).soft_mask, paper(tissue().images).soft_mask)
        assert "negative_evidence" not in literal.losses(tissue()).terms


def test_switched_off_it_is_the_papers_method():
    method = tiny_method("maxmin", dropout=0.0)  # no class is called normal
    assert "negative_class" not in method.state_dict()
    batch = tissue()
    with torch.no_grad():
        assert set(method.train().losses(batch).terms) == {"localizer", "size", "foreground", "background"}
        mask = method.eval()(batch.images).soft_mask
        maps = method.localizer.maps(method.backbone(method.backbone.normalise(batch.images)))
        winning = (maps * method.localizer.scores(maps).softmax(1)[:, :, None, None]).sum(1, keepdim=True)
        assert torch.equal(mask, torch.sigmoid(5.0 * (min_max(enlarge(winning, (64, 64), CORNERS)) - method.sigma)))
