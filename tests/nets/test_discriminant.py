"""Refinement of a mask by a discriminant of the image's own features."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from histolumen.nets.discriminant import Refinement, _inverse, _inverse_by_products


def refined(logits: torch.Tensor, levels: list[torch.Tensor], tissue: torch.Tensor | None = None) -> torch.Tensor:
    tissue = torch.ones_like(logits) if tissue is None else tissue
    return Refinement([level.shape[1] for level in levels])(logits, levels, tissue)


def scene(side: int = 64, seed: int = 0, tilt: float = 1.0) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """A round gland whose features differ from the stroma's, and a mask that reaches 4 positions too far."""
    random = torch.Generator().manual_seed(seed)
    axis = torch.arange(side) - side / 2 + 0.5
    radius = (axis[:, None].square() + axis.square()).sqrt()
    gland = radius < side / 4
    logits = 1.5 * (side / 4 + 4 - radius)[None, None]
    fine = (
        torch.randn(1, 6, side, side, generator=random)
        + tilt * gland * torch.tensor([1.5, -1, 0.5, 0, 0, 0])[:, None, None]
    )
    coarse = F.avg_pool2d(fine[:, :4], 2)
    return logits, [fine, coarse], gland


def overlap(logits: torch.Tensor, gland: torch.Tensor) -> float:
    mask = logits[0, 0] > 0
    return float((mask & gland).sum() / (mask | gland).sum())


@pytest.mark.parametrize("tilt", [1.0, -2.0])
def test_a_mask_that_reaches_too_far_is_drawn_back_to_where_the_features_change(tilt):
    logits, levels, gland = scene(tilt=tilt)
    assert overlap(logits, gland) < 0.7
    assert overlap(refined(logits, levels), gland) > 0.85


def test_without_a_difference_in_the_features_the_mask_stays():
    logits, levels, _ = scene(tilt=0)
    constant = [torch.full_like(level, 3.0) for level in levels]
    assert torch.allclose(refined(logits, constant).clamp(-4, 4), logits.clamp(-4, 4), atol=0.05)
    changed = (refined(logits, levels) > 0) != (logits > 0)
    assert changed.float().mean() < 0.02  # noise is no reason to move the boundary


@pytest.mark.parametrize("value", [-6.0, 0.0, 6.0])
def test_a_mask_of_one_side_alone_stays(value):
    _, levels, _ = scene()
    logits = torch.full((1, 1, 64, 64), value)
    assert torch.allclose(torch.sigmoid(refined(logits, levels)), torch.sigmoid(logits), atol=0.01)


def test_glass_beside_the_tissue_changes_nothing():
    """Painted over, it is sure background, of constant features unlike all others."""
    logits, levels, gland = scene()
    with_glass = refined(
        torch.cat([logits, torch.full_like(logits, -5.0)], dim=3),
        [torch.cat([level, torch.full_like(level, 10.0)], dim=3) for level in levels],
        torch.cat([torch.ones_like(logits), torch.zeros_like(logits)], dim=3),
    )[..., :64]
    assert overlap(with_glass, gland) > 0.85
    assert ((with_glass > 0) != (refined(logits, levels) > 0)).float().mean() < 0.01


def test_an_image_of_glass_alone_is_left_as_it_is():
    logits, levels, _ = scene()
    assert torch.allclose(
        refined(logits, levels, torch.zeros_like(logits)).clamp(-4, 4), logits.clamp(-4, 4), atol=0.05
    )


def test_many_channels_are_reduced_and_still_separate():
    logits, levels, gland = scene(side=128)
    many = [torch.cat([level, torch.randn(1, 200, *level.shape[2:])], dim=1) for level in levels]
    many[0][:, 6:60] += 1.5 * gland
    module = Refinement([level.shape[1] for level in many])
    assert not module.state_dict()
    assert overlap(module(logits, many, torch.ones_like(logits)), gland) > 0.85


def test_it_is_computed_in_single_precision():
    logits, levels, _ = scene()
    with torch.autocast("cpu", torch.bfloat16):
        inside = refined(logits, levels)
    assert torch.equal(inside, refined(logits, levels))


def test_a_few_sure_positions_hardly_count():
    logits, levels, _ = scene()
    speck = torch.full_like(logits, -5.0)
    speck[..., 30:34, 30:34] = 5.0
    assert ((refined(speck, levels) > 0) == (speck > 0)).all()


def test_images_of_a_batch_are_refined_alone():
    first, second = scene(seed=1), scene(seed=2, tilt=-1)
    together = refined(
        torch.cat([first[0], second[0]]), [torch.cat(pair) for pair in zip(first[1], second[1], strict=True)]
    )
    for k, (logits, levels, _) in enumerate((first, second)):
        assert torch.allclose(together[k : k + 1].sigmoid(), refined(logits, levels).sigmoid(), atol=1e-4)


def test_a_flipped_image_gives_the_flipped_mask():
    logits, levels, _ = scene()
    flipped = refined(logits.flip(3), [level.flip(3) for level in levels]).flip(3)
    assert torch.allclose(flipped.sigmoid(), refined(logits, levels).sigmoid(), atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 100), st.floats(-50, 50), st.integers(0, 99))
def test_the_unit_of_a_feature_does_not_matter(scale, shift, seed):
    logits, levels, _ = scene(side=32, seed=seed)
    other = [scale * level + shift for level in levels]
    assert torch.allclose(torch.sigmoid(refined(logits, other)), torch.sigmoid(refined(logits, levels)), atol=0.02)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 37), st.integers(1, 37), st.integers(1, 3), st.floats(0, 1e4))
def test_any_size_any_number_of_levels_and_any_values_give_finite_logits(height, width, count, scale):
    torch.manual_seed(height * width)
    sizes = [(height, width)]
    for _ in range(count - 1):
        sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
    levels = [scale * torch.randn(2, 3, *size) for size in sizes]
    logits = scale * torch.randn(2, 1, height, width)
    result = refined(logits, levels)
    assert result.shape == logits.shape
    assert result.isfinite().all()


@pytest.mark.parametrize("inverse", [_inverse, _inverse_by_products])
def test_strongly_correlated_features_are_inverted(inverse):
    torch.manual_seed(0)
    x = torch.randn(2, 500, 3) @ torch.randn(3, 100) + 0.01 * torch.randn(2, 500, 100)
    x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    matrices = x.transpose(1, 2) @ x / 500 + 0.1 * torch.eye(100)
    assert torch.allclose(inverse(matrices), torch.linalg.inv(matrices), atol=1e-2)
