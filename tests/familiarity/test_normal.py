"""Distance from a cloud of vectors: about 1 inside, large outside, sound with fewer vectors than dimensions."""

import numpy as np
import pytest

from histolumen.familiarity.normal import Normal, conformal_limit, held_out_distances


def cloud(count: int, size: int, seed: int = 0) -> np.ndarray:
    """Correlated normal vectors."""
    random = np.random.default_rng(seed)
    return random.normal(size=(count, size)) @ np.random.default_rng(9).normal(size=(size, size)) + 5


def test_the_distance_is_the_one_of_mahalanobis():
    vectors = cloud(200, 4)
    new = cloud(3, 4, seed=1)
    centred = new - vectors.mean(0)
    expected = np.sqrt(np.einsum("nd,de,ne->n", centred, np.linalg.inv(np.cov(vectors.T)), centred) / 4)
    assert Normal.fit(vectors).distance(new) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("count", [5, 20, 67])
def test_with_few_vectors_held_out_ones_are_inside_the_limit_and_strangers_outside(count):
    vectors = cloud(count, 80)
    limit = conformal_limit(held_out_distances(vectors, [str(k) for k in range(count)]), 0.95)
    normal = Normal.fit(vectors)
    assert (normal.distance(cloud(100, 80, seed=1)) <= limit).mean() > 0.75
    assert (normal.distance(cloud(20, 80, seed=2) * 6) > limit).all()


def test_the_limit_keeps_the_share_that_it_promises():
    values = np.random.default_rng(0).permutation(100) + 1.0
    assert conformal_limit(values, 0.95) == 96
    assert conformal_limit(values[:7], 0.95) == values[:7].max()


def test_images_of_one_patient_are_held_out_together():
    pairs = np.repeat(cloud(12, 6), 2, axis=0)
    pairs[::2] += 1e-3
    together = held_out_distances(pairs, [str(k // 2) for k in range(24)])
    alone = held_out_distances(pairs, [str(k) for k in range(24)])
    assert np.median(together) > 1.2 * np.median(alone)


def test_a_constant_dimension_does_not_divide_by_zero():
    vectors = cloud(20, 3)
    vectors[:, 1] = 7
    assert np.isfinite(Normal.fit(vectors).distance(vectors)).all()
