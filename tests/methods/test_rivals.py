"""Properties specific to each baseline method."""

import pytest
import torch
from build import tiny_method

from histolumen.data.batch import Batch
from histolumen.methods.base import Method
from histolumen.methods.pn import presence_penalty


def batch(images: int = 2) -> Batch:
    torch.manual_seed(5)
    return Batch(torch.rand(images, 3, 64, 96), torch.arange(images) % 2)


def test_all_ones_marks_everything_and_has_no_parameters():
    method = tiny_method("all_ones")
    assert not list(method.parameters())
    output = method(torch.rand(2, 3, 40, 50))
    assert (output.soft_mask == 1).all()
    assert output.probs.tolist() == [[0.5, 0.5]] * 2


def test_deep_mil_attention_is_a_weighting_of_positions_per_class():
    method = tiny_method("deep_mil", classes=3)
    maps = torch.rand(2, 6, 4, 6)
    scores, mean = method._pool(maps)
    assert scores.shape == (2, 3)
    attention = (maps[:, :3] - mean[:, :, None, None]).exp()  # relative to its mean
    assert torch.allclose(attention.mean((2, 3)), torch.ones(2, 3), atol=1e-5)


def test_deep_mil_scores_classify_the_attention_weighted_average():
    method = tiny_method("deep_mil").double().eval()
    X = torch.rand(1, 3, 64, 64, dtype=torch.float64)
    features = method.backbone(X)
    maps = method._maps(X)
    scores, _ = method._pool(maps)
    for c in range(2):
        attention = maps[:, c : c + 1].flatten(2).softmax(2).unflatten(2, maps.shape[2:])
        average = (features * attention).sum((2, 3))
        assert torch.allclose(method.classifier(average)[:, c], scores[:, c])


def deep_mil_with_attention(*weights: tuple[float, ...], negative_class: int | None = None) -> Method:
    """Deep MIL whose attention maps, of 2 x 2 positions, are the given weights, one tuple per class."""
    method = tiny_method("deep_mil", classes=len(weights), negative_class=negative_class).eval()
    attention = torch.tensor(weights).view(1, -1, 2, 2).log()
    # more evidence for the first class, so that it is the predicted one
    class_logits = torch.zeros_like(attention)
    class_logits[:, 0] = 5
    method._maps = lambda _: torch.cat([attention, class_logits], dim=1)
    return method


def corners(values: torch.Tensor) -> list[float]:
    """Maps are stretched from corner to corner: the corner pixels are the four positions."""
    return [values[y, x].item() for y in (0, -1) for x in (0, -1)]


def test_deep_mil_marks_attention_above_one_over_classes_times_positions():
    method = deep_mil_with_attention((0.5, 0.3, 0.15, 0.05), (0.25, 0.25, 0.25, 0.25))
    with torch.no_grad():
        evidence = method(torch.rand(1, 3, 64, 64)).evidence[0]
    # relative to the mean of 1/4: 2, 1.2, 0.6 and 0.2; the threshold 1 / (2 x 4) is 0.5
    assert corners(evidence[0]) == pytest.approx([1.5, 0.7, 0.1, -0.3], abs=1e-5)
    assert corners(evidence[1]) == pytest.approx([0.5] * 4, abs=1e-5)


def test_the_threshold_of_deep_mil_falls_with_the_number_of_classes():
    even = (0.25, 0.25, 0.25, 0.25)
    for classes, share in ((3, 1 / 3), (4, 1 / 4), (5, 1 / 5)):
        method = deep_mil_with_attention((0.5, 0.3, 0.14, 0.06), *[even] * (classes - 1))
        with torch.no_grad():
            evidence = method(torch.rand(1, 3, 64, 64)).evidence[0, 0]
        assert corners(evidence) == pytest.approx([2 - share, 1.2 - share, 0.56 - share, 0.24 - share], abs=1e-5)
    assert corners(evidence)[3] > 0  # 0.06 is above 1 / 20, but not above 1 / 16 or 1 / 12


def test_deep_mil_with_a_negative_class_has_the_same_threshold():
    even = (0.25, 0.25, 0.25, 0.25)
    method = deep_mil_with_attention((0.5, 0.3, 0.15, 0.05), even, negative_class=1)
    with torch.no_grad():
        evidence = method(torch.rand(1, 3, 64, 64)).evidence[0]
    for label in range(2):
        assert corners(evidence[label]) == pytest.approx([1.5, 0.7, 0.1, -0.3], abs=1e-5)


def test_presence_penalty_by_hand():
    # one position with a logit difference of log 3: sizes 0.75 and 0.25
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


def test_erase_removes_more_pixels_in_each_round():
    method = tiny_method("erase", test_rounds=3).eval()
    inputs_of_rounds = []
    method.backbone.register_forward_pre_hook(lambda _module, inputs: inputs_of_rounds.append(inputs[0]))
    method(torch.rand(1, 3, 64, 64))
    erased = [(x == 0).all(1).float().mean().item() for x in inputs_of_rounds]
    assert len(inputs_of_rounds) == 3
    assert erased[0] == 0
    assert 0 < erased[1] <= erased[2] < 1


def test_erase_predicts_with_one_pass():
    method = tiny_method("erase").eval()
    passes = []
    method.backbone.register_forward_pre_hook(lambda _module, _inputs: passes.append(1))
    method(torch.rand(1, 3, 64, 64))
    assert len(passes) == 1
    method.losses(batch())
    assert len(passes) == 1 + 3  # training erases


def test_the_mask_of_erase_covers_all_rounds():
    rounds = [tiny_method("erase", test_rounds=n).eval() for n in (1, 3)]
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        first, all_three = (method(images) for method in rounds)
    assert (all_three.soft_mask >= first.soft_mask).all()
    assert (all_three.soft_mask >= 0.5).float().mean() > (first.soft_mask >= 0.5).float().mean()
    assert torch.equal(first.probs, all_three.probs)  # the class is predicted from the whole image


def test_erase_has_a_loss_for_each_round():
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
    def test_the_decoder_loss_does_not_train_the_classifier(self):
        method = tiny_method("negev", warmup=0)
        method.losses(batch()).terms["evidence"].backward()
        trained = {name.split(".")[0] for name, p in method.named_parameters() if p.grad is not None and p.grad.any()}
        assert trained == {"decoder"}

    def test_the_evidence_loss_starts_after_the_warm_up(self):
        method = tiny_method("negev", warmup=0.2)
        values = []
        for _ in range(3):
            values.append(method.losses(batch()).terms["evidence"].item())
            method.on_epoch_end()
        assert values[0] == values[1] == 0
        assert values[2] > 0

    def test_pixels_are_sampled_where_the_map_is_highest_and_lowest(self):
        method = tiny_method("negev", candidates=0.2, pixels=50)
        evidence = torch.arange(100.0).expand(3, -1)
        assert method._sample(evidence).min() >= 80
        assert method._sample(-evidence).max() < 20

    def test_every_pixel_of_a_negative_image_is_background(self):
        method = tiny_method("negev", warmup=0, negative_class=1)
        logits = torch.zeros(1, 2, 16, 24)
        logits[:, 0] = 100  # background everywhere with high confidence
        negative = Batch(torch.rand(1, 3, 64, 96), torch.tensor([1]))
        positive = Batch(negative.images, torch.tensor([0]))
        maps = torch.rand(1, 2, 4, 6)
        assert method._evidence(logits, maps, negative).item() == 0
        assert method._evidence(logits, maps, positive).item() > 10

    def test_an_epoch_of_the_warm_up_is_not_chosen(self):
        method = tiny_method("negev", warmup=0.2)
        selectable = []
        for _ in range(3):
            selectable.append(method.selectable)
            method.on_epoch_end()
        assert selectable == [False, False, True]

    def test_features_that_reach_beyond_the_image_do_not_shift_the_mask(self):
        method = tiny_method("negev").eval()
        images = torch.rand(1, 3, 64, 90)
        beyond = torch.cat([images, images[..., -1:].expand(-1, -1, -1, 6)], dim=3)
        with torch.no_grad():
            features = method.backbone(method.backbone.normalise(beyond))
            cut, whole = (method.decoder(features, method.backbone.normalise(x)) for x in (images, beyond))
        assert torch.allclose(cut, whole, atol=1e-5)
