"""Natural groups: found without labels, the side chosen by labels, the same whatever the seed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from histolumen import grouping, losses

IMAGES, POSITIONS, CHANNELS = 12, 80, 10


def tissue(seed: int = 0, telling: str = "gland") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of two kinds of tissue, labels, and which kind each position is; only one kind shows the label."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(IMAGES) % 2
    gland = torch.rand(IMAGES, POSITIONS, generator=generator) < 0.4
    features = 0.4 * torch.randn(IMAGES, POSITIONS, CHANNELS, generator=generator)
    features[..., 0] += torch.where(gland, 2.0, -2.0)
    features[..., 1] += torch.where(gland, -1.0, 1.0)
    shows = gland if telling == "gland" else ~gland
    features[..., 2] += torch.where(shows, 1.5 * (2.0 * labels[:, None] - 1), 0.0)
    return features, labels, gland


def agreement(groups: grouping.Grouping, features: torch.Tensor, gland: torch.Tensor) -> float:
    found = torch.stack([groups.foreground(image.T[:, :, None])[:, 0] > 0.5 for image in features])
    return float((found == gland).float().mean())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_group_that_tells_the_label_is_the_foreground(seed):
    features, labels, gland = tissue(seed)
    groups = grouping.group(features, labels, seed)
    assert agreement(groups, features, gland) > 0.95
    assert groups.uncertainty[0] < groups.uncertainty[1]


def test_labels_choose_the_side_and_not_the_groups():
    features, labels, gland = tissue(telling="stroma")
    assert agreement(grouping.group(features, labels, 0), features, ~gland) > 0.95
    shuffled = labels.roll(1) ^ torch.tensor([0, 1, 1, 0] * 3)
    groups = grouping.group(tissue()[0], shuffled, 0)
    assert max(agreement(groups, tissue()[0], side) for side in (gland, ~gland)) > 0.95


def test_the_seed_is_all_that_varies_and_the_generator_is_left_alone():
    features, labels, _ = tissue()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again = (grouping.group(features, labels, 3) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    image = features[0].T[:, :, None]
    assert torch.equal(first.foreground(image), again.foreground(image))


def test_spectral_starts_follow_what_divides_the_tissue():
    features, _, gland = tissue()
    start = grouping.spectral_starts(features, grouping.affinity(features))[0]
    same = float(((start > 0.5) == gland).float().mean())
    assert max(same, 1 - same) > 0.95


def test_an_image_without_any_contrast_is_no_problem():
    features, labels, _ = tissue()
    features[0] = 1.0
    groups = grouping.group(features, labels, 0)
    assert torch.isfinite(groups.foreground(features[0].T[:, :, None])).all()


def test_label_uncertainty_is_measured_on_images_that_were_left_out():
    """With more channels than images any labels can be learned by heart; that must not look like certainty."""
    torch.manual_seed(0)
    pooled, labels = torch.randn(30, 200), torch.arange(30) % 2
    assert grouping.label_uncertainty(pooled, labels) > 0.6
    telling = pooled.clone()
    telling[:, 0] += 6 * (2.0 * labels - 1)
    assert grouping.label_uncertainty(telling, labels) < 0.5


def test_a_rare_class_does_not_end_the_cross_validation():
    torch.manual_seed(0)
    pooled, labels = torch.randn(31, 200), torch.tensor([*([0, 1] * 15), 2])
    assert grouping.label_uncertainty(pooled, labels) > 0.6


def test_without_two_images_of_any_class_it_is_a_guess():
    assert grouping.label_uncertainty(torch.randn(3, 4), torch.arange(3)) == pytest.approx(math.log(3))


@given(st.integers(2, 40), st.integers(0, 1000))
def test_a_walk_stays_within_the_values_it_averages(positions, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(positions, generator=generator)
    walked = grouping.walk(values, torch.randn(positions, 5, generator=generator))
    assert walked.min() >= values.min() - 1e-5
    assert walked.max() <= values.max() + 1e-5


def test_what_resembles_nothing_stays_as_it_was():
    assert grouping.walk(torch.tensor([0.7, 0.7]), torch.ones(2, 3)).tolist() == pytest.approx([0.7, 0.7])


def test_a_walk_over_many_positions_compares_with_a_sample_of_them():
    features, _, gland = tissue()
    many, kinds = features.flatten(0, 1).repeat(4, 1), gland.flatten().repeat(4).float()  # 3840 positions
    walked = grouping.walk(kinds, many)
    assert ((walked > 0.5) == (kinds > 0.5)).float().mean() > 0.95


@given(st.integers(2, 12), st.integers(0, 1000))
def test_the_cut_does_not_care_which_group_is_called_first(positions, seed):
    generator = torch.Generator().manual_seed(seed)
    edges = grouping.affinity(torch.randn(2, positions, 4, generator=generator))
    share = torch.rand(2, positions, generator=generator)
    assert torch.allclose(losses.normalised_cut(share, edges), losses.normalised_cut(1 - share, edges), atol=1e-4)
