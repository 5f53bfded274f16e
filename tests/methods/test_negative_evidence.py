"""Negative evidence: images of one class have an empty foreground, the others do not; switched off, nothing changes."""

import pytest
import torch
from build import tiny_method
from contract import MethodContract

from histolumen.errors import ConfigError
from histolumen.methods.base import Batch
from histolumen.methods.maxmin import MaxMin, MaxMinSettings, mask_logits
from histolumen.nets.backbones import BackboneSettings, build_backbone
from histolumen.nets.geometry import enlarge, min_max

CLASSES = ["metastatic", "normal"]


def make(classes: list[str] = CLASSES, **settings) -> MaxMin:
    torch.manual_seed(0)
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16))
    method = MaxMin(MaxMinSettings(**{"classifier_scale": 1.0, "dropout": 0.0, **settings}), backbone, len(classes))
    method.begin(epochs=10, classes=classes)
    return method


def tissue() -> Batch:
    """Four pictures of plain tissue; two of them have a dark nest on the left, and are metastatic."""
    torch.manual_seed(1)
    images = 0.8 + 0.05 * torch.randn(4, 3, 64, 64)
    images[:2, :2, 8:56, 4:36] = 0.5 * torch.rand(2, 2, 48, 32)
    return Batch(images.clamp(0, 1), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("options", [{}, {"mask_from": "decoder", "grouping": 1}], ids=["cam", "decoder"])
class TestContract(MethodContract):
    @pytest.fixture
    def make(self, options):
        return lambda classes: tiny_method("maxmin", classes, negative_evidence=1, negative_class="class 0", **options)


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
        output = method.predict(batch.images)  # still in training mode: the statistics of this batch
    sizes = output.mask.mean((1, 2, 3))
    assert (sizes[2:] < 0.05).all()
    assert (sizes[:2] > 0.2).all()
    assert output.probs.argmax(1).tolist() == batch.labels.tolist()


def test_the_term_is_there_in_every_batch():
    method = make(negative_evidence=2)
    both, one_class = tissue(), Batch(tissue().images[:2], torch.tensor([0, 0]))
    assert method.losses(both).terms["negative_evidence"] > 0
    term = method.losses(one_class).terms["negative_evidence"]
    assert term.item() == 0
    assert term.requires_grad


def test_of_two_classes_the_mask_is_the_positive_ones_map():
    method = make(negative_evidence=1).eval()
    images = tissue().images
    with torch.no_grad():
        maps = method.localizer.maps(method.backbone(method.backbone.normalise(images)))
        assert torch.allclose(method.predict(images).mask, torch.sigmoid(5 * enlarge(maps[:, :1], (64, 64))), atol=1e-6)


def test_the_other_classes_share_their_maps_by_renormalised_probabilities():
    method = make(["a", "normal", "b"], negative_evidence=1)
    maps, scores = torch.randn(2, 3, 4, 4), torch.randn(2, 3)
    probs = scores.softmax(1)
    share = (probs[:, 0] / (probs[:, 0] + probs[:, 2]))[:, None, None, None]
    by_hand = 5 * enlarge(share * maps[:, :1] + (1 - share) * maps[:, 2:], (8, 8))
    assert torch.allclose(method._cam_logits(maps, scores, torch.zeros(2, 3, 8, 8)), by_hand, atol=1e-5)


def test_a_map_that_is_not_stretched_can_be_empty():
    nothing = torch.full((1, 1, 4, 4), -3.0) + 0.1 * torch.rand(1, 1, 4, 4)
    one = torch.ones(1, 1)
    assert torch.sigmoid(mask_logits(nothing, one, (8, 8), None, 5.0)).max() < 1e-5
    assert torch.sigmoid(mask_logits(nothing, one, (8, 8), 0.15, 5.0)).max() > 0.9


def test_a_saved_model_knows_its_negative_class():
    saved = make(negative_evidence=1).eval()
    torch.manual_seed(5)
    loaded = MaxMin(
        saved.settings, build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16)), 2
    )
    loaded.load_state_dict(saved.state_dict())  # and `begin` is never called
    images = tissue().images
    with torch.no_grad():
        assert torch.equal(loaded.eval().predict(images).mask, saved.predict(images).mask)


def test_proposals_of_normal_images_are_not_followed():
    method = make(negative_evidence=1, mask_from="decoder", grouping=1)
    plain = tissue()
    full, empty = (
        Batch(plain.images[2:], plain.labels[2:], proposals=torch.full((2, 1, 64, 64), side)) for side in (1.0, 0.0)
    )
    assert method.losses(full).terms["grouping"].item() == method.losses(empty).terms["grouping"].item() == 0


def test_a_class_that_does_not_exist_names_the_nearest():
    with pytest.raises(ConfigError, match=r"method\.negative_class: no class 'normal'; did you mean 'normals'"):
        make(["normals", "tumour"], negative_evidence=1)


def test_switched_off_it_is_the_papers_method():
    method = tiny_method("maxmin", dropout=0.0)  # whose classes are not called normal
    assert "negative_class" not in method.state_dict()
    batch = tissue()
    with torch.no_grad():
        assert set(method.train().losses(batch).terms) == {"localizer", "size", "foreground", "background"}
        mask = method.eval().predict(batch.images).mask
        maps = method.localizer.maps(method.backbone(method.backbone.normalise(batch.images)))
        winning = (maps * method.localizer.scores(maps).softmax(1)[:, :, None, None]).sum(1, keepdim=True)
        assert torch.equal(mask, torch.sigmoid(5.0 * (min_max(enlarge(winning, (64, 64))) - method.sigma)))
