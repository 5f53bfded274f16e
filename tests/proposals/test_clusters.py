"""Tissue clusters: found without labels, the foreground chosen by labels, reproducible for a seed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from histolumen import losses
from histolumen.proposals import clusters

IMAGES, POSITIONS, CHANNELS = 12, 80, 10


def tissue(seed: int = 0, informative: str = "gland") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of two tissue types, labels, and which positions are gland; one type depends on the label."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(IMAGES) % 2
    gland = torch.rand(IMAGES, POSITIONS, generator=generator) < 0.4
    features = 0.4 * torch.randn(IMAGES, POSITIONS, CHANNELS, generator=generator)
    features[..., 0] += torch.where(gland, 2.0, -2.0)
    features[..., 1] += torch.where(gland, -1.0, 1.0)
    depends = gland if informative == "gland" else ~gland
    features[..., 2] += torch.where(depends, 1.5 * (2.0 * labels[:, None] - 1), 0.0)
    return features, labels, gland


def everywhere(fitted: clusters.TissueClusters, positions: torch.Tensor) -> torch.Tensor:
    """The foreground of positions [N, C] that are all on tissue."""
    return fitted.foreground(positions.T[:, :, None], torch.ones(len(positions), 1, dtype=torch.bool))


def agreement(fitted: clusters.TissueClusters, features: torch.Tensor, gland: torch.Tensor) -> float:
    predicted = torch.stack([everywhere(fitted, image)[:, 0] > 0.5 for image in features])
    return float((predicted == gland).float().mean())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_cluster_that_predicts_the_label_is_the_foreground(seed):
    features, labels, gland = tissue(seed)
    fitted = clusters.tissue_clusters(features, labels, seed)
    assert agreement(fitted, features, gland) > 0.95
    assert fitted.uncertainty[0] < fitted.uncertainty[1]


def test_labels_choose_the_foreground_and_not_the_clusters():
    features, labels, gland = tissue(informative="stroma")
    assert agreement(clusters.tissue_clusters(features, labels, 0), features, ~gland) > 0.95
    shuffled = labels.roll(1) ^ torch.tensor([0, 1, 1, 0] * 3)
    fitted = clusters.tissue_clusters(tissue()[0], shuffled, 0)
    assert max(agreement(fitted, tissue()[0], side) for side in (gland, ~gland)) > 0.95


def test_results_are_reproducible_and_the_global_generator_is_unchanged():
    features, labels, _ = tissue()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again = (clusters.tissue_clusters(features, labels, 3) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(everywhere(first, features[0]), everywhere(again, features[0]))


def test_spectral_starts_separate_the_tissue_types():
    features, _, gland = tissue()
    start = clusters.spectral_starts(features, clusters.affinity(features))[0]
    same = float(((start > 0.5) == gland).float().mean())
    assert max(same, 1 - same) > 0.95


def test_an_image_without_contrast_gives_finite_values():
    features, labels, _ = tissue()
    features[0] = 1.0
    fitted = clusters.tissue_clusters(features, labels, 0)
    assert torch.isfinite(everywhere(fitted, features[0])).all()


def test_label_uncertainty_is_measured_on_held_out_images():
    """With more channels than images any labels can be memorised, which must not count as certainty."""
    torch.manual_seed(0)
    pooled, labels = torch.randn(30, 200), torch.arange(30) % 2
    assert clusters.label_uncertainty(pooled, labels) > 0.6
    informative = pooled.clone()
    informative[:, 0] += 6 * (2.0 * labels - 1)
    assert clusters.label_uncertainty(informative, labels) < 0.5


def test_a_class_with_one_image_does_not_break_cross_validation():
    torch.manual_seed(0)
    pooled, labels = torch.randn(31, 200), torch.tensor([*([0, 1] * 15), 2])
    assert clusters.label_uncertainty(pooled, labels) > 0.6


def test_with_one_image_per_class_the_uncertainty_is_that_of_a_guess():
    assert clusters.label_uncertainty(torch.randn(3, 4), torch.arange(3)) == pytest.approx(math.log(3))


@given(st.integers(2, 40), st.integers(0, 1000))
def test_a_walk_stays_within_the_values_it_averages(positions, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(positions, generator=generator)
    walked = clusters.walk(values, torch.randn(positions, 5, generator=generator), values > 0.3)
    assert walked.min() >= values.min() - 1e-5
    assert walked.max() <= values.max() + 1e-5


def test_a_position_similar_to_none_keeps_its_value():
    walked = clusters.walk(torch.tensor([0.7, 0.7]), torch.ones(2, 3), torch.tensor([True, True]))
    assert walked.tolist() == pytest.approx([0.7, 0.7])


def test_a_walk_over_many_positions_averages_over_a_sample():
    features, _, gland = tissue()
    many, kinds = features.flatten(0, 1).repeat(4, 1), gland.flatten().repeat(4).float()  # 3840 positions
    walked = clusters.walk(kinds, many, torch.ones(len(many), dtype=torch.bool))
    assert ((walked > 0.5) == (kinds > 0.5)).float().mean() > 0.95


@given(st.integers(2, 12), st.integers(0, 1000))
def test_the_cut_is_symmetric_in_the_two_groups(positions, seed):
    generator = torch.Generator().manual_seed(seed)
    edges = clusters.affinity(torch.randn(2, positions, 4, generator=generator))
    share = torch.rand(2, positions, generator=generator)
    assert torch.allclose(losses.normalised_cut(share, edges), losses.normalised_cut(1 - share, edges), atol=1e-4)


def test_a_walk_ignores_positions_beside_the_tissue():
    features, _, gland = tissue()
    kinds, on_tissue = gland[0].float(), torch.ones(POSITIONS, dtype=torch.bool)
    on_tissue[::3] = False
    spoilt = torch.where(on_tissue, kinds, 1 - kinds)
    walked = clusters.walk(spoilt, features[0], on_tissue)
    assert ((walked > 0.5) == (kinds > 0.5)).float().mean() > 0.95  # positions beside it take the value of their like
