"""Each equation against values computed by hand, gradients against the formulas of the paper's appendix."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from histolumen import losses

# softmax of these logits is exactly (3/4, 1/4)
LOGITS = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)


def test_foreground_cross_entropy_by_hand():  # Eq. 1-1
    assert losses.cross_entropy(LOGITS, torch.tensor([0])).item() == pytest.approx(-math.log(0.75))
    assert losses.cross_entropy(LOGITS, torch.tensor([1])).item() == pytest.approx(-math.log(0.25))


def test_eem_by_hand():  # Eq. 6: 3/4 log2(3/4) + 1/4 log2(1/4)
    assert losses.negative_entropy(LOGITS).item() == pytest.approx(0.75 * math.log2(0.75) + 0.25 * -2)


def test_sem_by_hand():  # Eq. 7: -1/2 (log2(3/4) + log2(1/4))
    assert losses.uniform_cross_entropy(LOGITS).item() == pytest.approx(-0.5 * (math.log2(0.75) - 2))


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_both_are_lowest_for_uniform_probabilities(classes):
    uniform = torch.zeros(1, classes)
    confident = torch.linspace(-2, 2, classes)[None]
    assert losses.negative_entropy(uniform).item() == pytest.approx(-math.log2(classes), abs=1e-6)
    assert losses.uniform_cross_entropy(uniform).item() == pytest.approx(math.log2(classes), abs=1e-6)
    for kind in ("eem", "sem"):
        assert losses.background_uncertainty(confident, kind) > losses.background_uncertainty(uniform, kind)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.8, 0.95])
def test_gradients_agree_with_the_appendix(p):
    """d/dp of the two energies (A.3 and A.5, base 2), reached through the logit z with dp/dz = p (1 - p)."""
    z = torch.tensor([[math.log(p / (1 - p)), 0.0]], dtype=torch.float64, requires_grad=True)
    (eem,) = torch.autograd.grad(losses.negative_entropy(z), z)
    (sem,) = torch.autograd.grad(losses.uniform_cross_entropy(z), z)
    slope = p * (1 - p)
    assert eem[0, 0].item() == pytest.approx(math.log2(p / (1 - p)) * slope, abs=1e-9)
    assert sem[0, 0].item() == pytest.approx(-0.5 * (1 / p - 1 / (1 - p)) / math.log(2) * slope, abs=1e-9)


def test_background_terms_are_finite_if_probabilities_underflow():
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    for term in (losses.negative_entropy, losses.uniform_cross_entropy):
        value = term(logits)
        (gradient,) = torch.autograd.grad(value, logits)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
    assert losses.uniform_cross_entropy(logits).item() == pytest.approx(0.5 * 400 / math.log(2), rel=1e-5)


def test_barrier_by_hand():
    t = torch.tensor(5.0)
    assert losses.log_barrier(torch.tensor(100.0), t).item() == pytest.approx(-math.log(100) / 5)
    # below 1/25 the tangent: -t s + 2 log(t)/t + 1/t
    assert losses.log_barrier(torch.tensor(0.0), t).item() == pytest.approx(2 * math.log(5) / 5 + 0.2)
    assert losses.log_barrier(torch.tensor(-1.0), t).item() == pytest.approx(5 + 2 * math.log(5) / 5 + 0.2)


@given(t=st.floats(1.0, 30.0))
def test_barrier_is_smooth_at_its_knee(t):
    knee = torch.tensor(1 / t**2, dtype=torch.float64)
    scale = torch.tensor(t, dtype=torch.float64)
    points = (knee * torch.tensor([1 - 1e-6, 1 + 1e-6], dtype=torch.float64)).requires_grad_()
    values = losses.log_barrier(points, scale)
    (slopes,) = torch.autograd.grad(values.sum(), points)
    assert values[0].item() == pytest.approx(values[1].item(), abs=1e-4)
    assert slopes[0].item() == pytest.approx(slopes[1].item(), rel=1e-4)


def test_size_barrier_sums_pixels_of_both_regions_and_averages_the_batch():
    masks = torch.stack([torch.full((1, 4, 5), 0.25), torch.full((1, 4, 5), 0.5)])
    t = torch.tensor(5.0)
    by_hand = [-(math.log(5) + math.log(15)) / 5, -(math.log(10) + math.log(10)) / 5]
    assert losses.size_barrier(masks, t).item() == pytest.approx(sum(by_hand) / 2, rel=1e-6)
    shares = [-(math.log(0.25) + math.log(0.75)) / 5, -(math.log(0.5) + math.log(0.5)) / 5]
    assert losses.size_barrier(masks, t, "fraction").item() == pytest.approx(sum(shares) / 2, rel=1e-6)


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_size_barrier_has_a_finite_gradient_for_empty_and_full_masks(fill):
    mask = torch.full((1, 1, 8, 8), fill, requires_grad=True)
    (gradient,) = torch.autograd.grad(losses.size_barrier(mask, torch.tensor(5.0)), mask)
    assert torch.isfinite(gradient).all()
    towards_balance = -1 if fill == 0 else 1  # descending the gradient grows the missing region
    assert (torch.sign(gradient) == towards_balance).all()


def test_size_barrier_of_a_mask_in_bfloat16_is_computed_in_single_precision():
    mask, t = torch.rand(2, 1, 160, 160).bfloat16(), torch.tensor(5.0)
    value = losses.size_barrier(mask, t)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(losses.size_barrier(mask.float(), t).item(), rel=1e-6)


def test_size_barrier_is_lowest_when_balanced():
    values = [losses.size_barrier(torch.full((1, 1, 8, 8), share), torch.tensor(5.0)) for share in (0.2, 0.5, 0.8)]
    assert values[1] < values[0]
    assert values[1] < values[2]


# --- beyond the paper


def test_negative_evidence_by_hand():
    logits = torch.tensor([0.0, math.log(3.0), 50.0])[:, None, None, None].expand(3, 1, 2, 2)  # M+ = 1/2, 3/4, 1
    negative = torch.tensor([True, True, False])
    by_hand = (math.log(2) + math.log(4)) / 2
    assert losses.negative_evidence(logits, negative).item() == pytest.approx(by_hand)


def test_negative_evidence_keeps_its_gradient_for_large_logits():
    logits = torch.full((1, 1, 2, 2), 200.0, requires_grad=True)
    value = losses.negative_evidence(logits, torch.tensor([True]))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(200)
    assert gradient.sum().item() == pytest.approx(1)


def test_without_negative_images_the_term_is_zero_but_has_a_graph():
    logits = torch.randn(2, 1, 2, 2, requires_grad=True)
    value = losses.negative_evidence(logits, torch.tensor([False, False]))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == 0
    assert (gradient == 0).all()


def test_the_size_barrier_ignores_the_foreground_of_negative_images():
    masks = torch.stack([torch.full((1, 4, 5), 0.25), torch.full((1, 4, 5), 0.5)])
    value = losses.size_barrier(masks, torch.tensor(5.0), negative=torch.tensor([True, False]))
    assert value.item() == pytest.approx(-(math.log(15) + math.log(10) + math.log(10)) / 5 / 2, rel=1e-6)


def test_normalised_cut_by_hand():
    # two pairs with affinity 1 inside, 0.5 across one bridge
    edges = torch.tensor([[[1, 1, 0, 0], [1, 1, 0.5, 0], [0, 0.5, 1, 1], [0, 0, 1, 1]]])
    right = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    wrong = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    assert losses.normalised_cut(right, edges).item() == pytest.approx(0.5 / 4.5 + 0.5 / 4.5)
    assert losses.normalised_cut(wrong, edges).item() == pytest.approx(2.5 / 4.5 + 2.5 / 4.5)


def test_a_cut_with_an_empty_group_is_finite():
    assert torch.isfinite(losses.normalised_cut(torch.zeros(1, 3), torch.ones(1, 3, 3))).all()


def test_proposals_are_weighted_by_their_confidence():
    logits = torch.zeros(1, 1, 1, 3)
    halves = torch.full((1, 1, 1, 3), 0.5)
    assert losses.proposal_cross_entropy(logits, halves).item() == 0
    one_confident = torch.tensor([[[[1.0, 0.5, 0.5]]]])
    for value, expected in ((0.0, math.log(2)), (4.0, math.log(1 + math.exp(-4)))):
        logits = torch.tensor([[[[value, -9.0, 9.0]]]])  # the two unconfident ones have weight 0
        assert losses.proposal_cross_entropy(logits, one_confident).item() == pytest.approx(expected, rel=1e-4)


def test_mask_boundaries_are_free_at_colour_edges():
    mask = torch.zeros(1, 1, 4, 8)
    mask[..., 4:] = 1
    edge, flat = torch.zeros(1, 3, 4, 8), torch.zeros(1, 3, 4, 8)
    edge[..., 4:] = 1
    assert losses.edge_consistency(mask, edge) < 1e-6
    assert losses.edge_consistency(mask, flat).item() == pytest.approx(1 / 7)  # one of seven steps, in full
    assert losses.edge_consistency(torch.ones(1, 1, 4, 8), flat) == 0
