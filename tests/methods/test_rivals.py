"""What each rival does that the others do not."""

import pytest
import torch
from build import tiny_method

from histolumen.errors import ConfigError
from histolumen.methods.base import Batch
from histolumen.methods.pn import presence_penalty


def batch(images: int = 2) -> Batch:
    torch.manual_seed(5)
    return Batch(torch.rand(images, 3, 64, 96), torch.arange(images) % 2)


def test_all_ones_marks_everything_and_has_nothing_to_learn():
    method = tiny_method("all_ones")
    assert not list(method.parameters())
    output = method.predict(torch.rand(2, 3, 40, 50))
    assert (output.mask == 1).all()
    assert output.probs.tolist() == [[0.5, 0.5]] * 2


def test_deep_mil_attention_is_a_weighting_of_positions_per_class():
    method = tiny_method("deep_mil", classes=3)
    scores, attention = method._judge(torch.rand(2, 6, 4, 6))
    assert scores.shape == (2, 3)
    assert torch.allclose(attention.mean((2, 3)), torch.ones(2, 3), atol=1e-5)


def test_deep_mil_scores_are_the_classifiers_opinion_of_the_attended_average():
    method = tiny_method("deep_mil").double().eval()
    X = torch.rand(1, 3, 64, 64, dtype=torch.float64)
    features = method.backbone(X)
    scores, attention = method._judge(method._maps(X))
    for c in range(2):
        average = (features * attention[:, c : c + 1]).mean((2, 3))
        assert torch.allclose(method.classifier(average)[:, c], scores[:, c])


def test_presence_penalty_by_hand():
    # one position in favour of class 0 by log 3: sizes 0.75 and 0.25
    maps = torch.tensor([[[[3.0]], [[1.0]]]]).log()
    assert presence_penalty(maps, torch.tensor([0])).item() == pytest.approx(0.25**2 + 0.25**2)
    assert presence_penalty(maps, torch.tensor([1])).item() == pytest.approx(0.75**2 + 0.75**2)


def test_presence_penalty_does_not_bound_the_present_class_from_above():
    maps = torch.zeros(1, 2, 5, 5)
    maps[:, 0] = 50.0
    assert presence_penalty(maps, torch.tensor([0])).item() == pytest.approx(0, abs=1e-12)


def test_the_size_penalty_of_pn_is_weighted():
    weights = (1.0, 10.0)
    one, ten = (tiny_method("pn", dropout=0, **{"lambda": weight}).losses(batch()).terms["size"] for weight in weights)
    assert ten.item() == pytest.approx(10 * one.item(), rel=1e-5)


def test_erase_shows_each_round_less_of_the_image():
    method = tiny_method("erase", rounds=3).eval()
    seen = []
    method.backbone.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    method.predict(torch.rand(1, 3, 64, 64))
    erased = [(x == 0).all(1).float().mean().item() for x in seen]
    assert len(seen) == 3
    assert erased[0] == 0
    assert 0 < erased[1] <= erased[2] < 1


def test_erase_keeps_what_each_round_found():
    rounds = [tiny_method("erase", rounds=n).eval() for n in (1, 3)]
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        first, all_three = (method.predict(images) for method in rounds)
    assert (all_three.mask >= first.mask).all()
    assert (all_three.mask >= 0.5).float().mean() > (first.mask >= 0.5).float().mean()
    assert torch.equal(first.probs, all_three.probs)  # the class is judged on the whole image


def test_erase_trains_on_what_is_left():
    terms = tiny_method("erase", rounds=3).losses(batch()).terms
    assert set(terms) == {"round 1", "round 2", "round 3"}


def test_unet_needs_masks_and_learns_from_them():
    method = tiny_method("unet")
    with pytest.raises(ValueError, match="masks"):
        method.losses(batch())
    masks = torch.zeros(2, 1, 64, 96)
    masks[..., :48] = 1
    images = masks.expand(-1, 3, -1, -1).clone()
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1, momentum=0.9)
    values = []
    for _ in range(30):
        loss = method.losses(Batch(images, torch.tensor([0, 1]), masks)).terms["pixels"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < 0.2 * values[0]


class TestNegev:
    def test_the_decoder_does_not_change_the_classifier(self):
        method = tiny_method("negev", warmup=0)
        method.losses(batch()).terms["evidence"].backward()
        touched = {name.split(".")[0] for name, p in method.named_parameters() if p.grad is not None and p.grad.any()}
        assert touched == {"decoder"}

    def test_evidence_waits_for_the_classifier(self):
        method = tiny_method("negev", warmup=0.2)
        values = []
        for _ in range(3):
            values.append(method.losses(batch()).terms["evidence"].item())
            method.end_epoch()
        assert values[0] == values[1] == 0
        assert values[2] > 0

    def test_pixels_come_from_the_ends_of_the_map(self):
        method = tiny_method("negev", candidates=0.2, pixels=50)
        evidence = torch.arange(100.0).expand(3, -1)
        assert method._sample(evidence).min() >= 80
        assert method._sample(-evidence).max() < 20

    def test_every_pixel_of_a_negative_image_is_background(self):
        method = tiny_method("negev", warmup=0, negative_class="class 1")
        logits = torch.zeros(1, 2, 16, 24)
        logits[:, 0] = 100  # all background, and sure of it
        negative = Batch(torch.rand(1, 3, 64, 96), torch.tensor([1]))
        positive = Batch(negative.images, torch.tensor([0]))
        maps = torch.rand(1, 2, 4, 6)
        assert method._evidence(logits, maps, negative).item() == 0
        assert method._evidence(logits, maps, positive).item() > 10

    def test_a_negative_class_that_does_not_exist(self):
        with pytest.raises(ConfigError, match="no class 'class 2'"):
            tiny_method("negev", negative_class="class 2")

    def test_an_epoch_of_the_warm_up_is_not_chosen(self):
        method = tiny_method("negev", warmup=0.2)
        found = []
        for _ in range(3):
            found.append(method.ready)
            method.end_epoch()
        assert found == [False, False, True]

    def test_features_that_reach_beyond_the_image_do_not_shift_the_mask(self):
        method = tiny_method("negev").eval()
        images = torch.rand(1, 3, 64, 90)
        beyond = torch.cat([images, images[..., -1:].expand(-1, -1, -1, 6)], dim=3)
        with torch.no_grad():
            features = method.backbone(method.backbone.normalise(beyond))
            cut, whole = (method.decoder(features, method.backbone.normalise(x)) for x in (images, beyond))
        assert torch.allclose(cut, whole, atol=1e-5)
