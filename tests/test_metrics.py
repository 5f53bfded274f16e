"""Scores against values computed by hand and against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import average_precision_score

from histolumen import metrics
from histolumen.metrics import (
    BINS,
    bootstrap,
    count_pixels,
    pixel_average_precision,
    pooled_average_precision,
    weighted_mean,
)

TRUTH = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
SOFT = np.array([[0.9, 0.2, 0.7, 0.1], [0.5, 0.4, 0.0, 0.3]])  # at 0.5: TP 2, FN 1, FP 1

masks = arrays.arrays(bool, (4, 5))
soft_masks = arrays.arrays(float, (4, 5), elements=st.floats(0, 1))


# --- Dice and its relatives


def dice(true: np.ndarray, predicted: np.ndarray) -> float:
    """F1 by its definition, 2 |G & S| / (|G| + |S|)."""
    return 2 * (true & predicted).sum() / (true.sum() + predicted.sum())


def test_counts_and_scores_by_hand():
    counts = count_pixels(SOFT, TRUTH)
    assert counts.confusion == (4, 1, 1, 2)
    assert counts.f1_plus == pytest.approx(4 / 6)
    assert counts.f1_minus == pytest.approx(8 / 10)
    assert counts.miou == pytest.approx((2 / 4 + 4 / 6) / 2)
    assert counts.predicted_share == pytest.approx(3 / 8)
    assert counts.true_share == pytest.approx(3 / 8)


def test_a_pixel_at_the_threshold_is_foreground():
    half = np.array([[0.5]])
    assert count_pixels(half, np.array([[True]])).confusion == (0, 0, 0, 1)
    assert count_pixels(half, np.array([[True]]), half >= 0.6).confusion == (0, 0, 1, 0)


def test_f1_plus_is_undefined_without_foreground():
    empty = np.zeros((2, 4), bool)
    counts = count_pixels(SOFT, empty)
    assert math.isnan(counts.f1_plus)
    assert counts.f1_minus == pytest.approx(2 * 5 / (2 * 5 + 3))
    assert counts.miou == pytest.approx(5 / 8)


def test_f1_minus_is_undefined_without_background():
    counts = count_pixels(SOFT, np.ones((2, 4), bool))
    assert math.isnan(counts.f1_minus)
    assert counts.f1_plus == pytest.approx(2 * 3 / (2 * 3 + 5))
    assert counts.miou == pytest.approx(3 / 8)


@given(masks, masks)
def test_both_f1_are_dice_where_they_are_defined(truth, predicted):
    counts = count_pixels(predicted.astype(float), truth)
    if truth.any():
        assert counts.f1_plus == pytest.approx(dice(truth, predicted))
    if not truth.all():
        assert counts.f1_minus == pytest.approx(dice(~truth, ~predicted))


@given(masks, masks)
def test_swapping_foreground_and_background_swaps_the_scores(truth, predicted):
    counts = count_pixels(predicted.astype(float), truth)
    swapped = count_pixels((~predicted).astype(float), ~truth)
    assert counts.f1_plus == pytest.approx(swapped.f1_minus, nan_ok=True)
    assert counts.f1_minus == pytest.approx(swapped.f1_plus, nan_ok=True)
    assert counts.miou == pytest.approx(swapped.miou)


@given(st.lists(masks.filter(np.any), min_size=1, max_size=5))
def test_calling_everything_foreground_scores_the_mean_of_2a_over_1_plus_a(truths):
    scores = [count_pixels(np.ones(truth.shape), truth).f1_plus for truth in truths]
    shares = np.array([truth.mean() for truth in truths])
    assert np.mean(scores) == pytest.approx(np.mean(2 * shares / (1 + shares)))


# --- PxAP


@given(soft_masks, masks)
def test_every_pixel_is_counted_in_one_bin(soft, truth):
    counts = count_pixels(soft, truth)
    assert counts.positives.shape == counts.negatives.shape == (BINS,)
    assert counts.positives.sum() == truth.sum()
    assert counts.negatives.sum() == (~truth).sum()


def test_bins_reach_from_zero_to_one_included():
    counts = count_pixels(np.array([[0.0, 0.0005, 0.9995, 1.0]]), np.ones((1, 4), bool))
    assert counts.positives.nonzero()[0].tolist() == [0, BINS - 1]


@given(arrays.arrays(int, (4, 5), elements=st.integers(0, BINS - 1)), masks)
def test_pxap_agrees_with_scikit_learn(bins, truth):
    assume(truth.any())
    soft = (bins + 0.5) / BINS
    counts = count_pixels(soft, truth)
    expected = average_precision_score(truth.ravel(), soft.ravel())
    assert pixel_average_precision(counts.positives, counts.negatives) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:No positive class")
def test_pxap_pools_the_pixels_of_all_images():
    rng = np.random.default_rng(0)
    truths = [rng.random((6, 7)) < share for share in (0.0, 0.3, 0.8)]
    softs = [(np.floor(BINS * (0.6 * rng.random(t.shape) + 0.4 * t)) + 0.5) / BINS for t in truths]
    pooled = pooled_average_precision([count_pixels(s, t) for s, t in zip(softs, truths, strict=True)])
    expected = average_precision_score(np.ravel(truths), np.ravel(softs))
    assert pooled(np.ones((1, 3)))[0] == pytest.approx(expected)
    drawn_twice = average_precision_score(
        np.ravel([truths[1]] * 2 + [truths[2]]), np.ravel([softs[1]] * 2 + [softs[2]])
    )
    assert pooled(np.array([[0, 2, 1]]))[0] == pytest.approx(drawn_twice)


def test_pxap_of_a_perfect_and_of_a_constant_mask():
    perfect = count_pixels(TRUTH.astype(float), TRUTH)
    assert pixel_average_precision(perfect.positives, perfect.negatives) == 1
    constant = count_pixels(np.full(TRUTH.shape, 0.3), TRUTH)
    assert pixel_average_precision(constant.positives, constant.negatives) == pytest.approx(TRUTH.mean())


def test_pxap_is_undefined_without_a_foreground_pixel():
    counts = count_pixels(SOFT, np.zeros((2, 4), bool))
    assert np.isnan(pixel_average_precision(counts.positives, counts.negatives))


# --- intervals


def test_weighted_mean_ignores_undefined_images():
    mean = weighted_mean(np.array([1.0, np.nan, 4.0]))
    assert mean(np.array([[1, 1, 1], [2, 5, 1], [0, 3, 0]])) == pytest.approx([2.5, 2.0, np.nan], nan_ok=True)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 9))
def test_the_interval_stays_within_the_values_and_is_the_same_for_the_same_seed(values, seed):
    statistic = weighted_mean(np.array(values))
    score = bootstrap(len(values), statistic, seed, resamples=50)
    assert score.value == pytest.approx(np.mean(values))
    assert min(values) - 1e-9 <= score.low <= score.high <= max(values) + 1e-9
    assert score == bootstrap(len(values), statistic, seed, resamples=50)


def test_the_interval_contains_the_value_and_is_as_wide_as_theory_says():
    values = np.random.default_rng(0).normal(0.7, 0.1, 200)
    score = bootstrap(200, weighted_mean(values))
    assert score.low < score.value < score.high
    assert score.high - score.low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(200), rel=0.1)


def test_more_images_give_a_narrower_interval():
    values = np.random.default_rng(0).random(400)
    few, many = bootstrap(25, weighted_mean(values[:25])), bootstrap(400, weighted_mean(values))
    assert many.high - many.low < 0.5 * (few.high - few.low)


def test_another_seed_gives_another_resampling():
    statistic = weighted_mean(np.random.default_rng(0).random(20))
    assert bootstrap(20, statistic, seed=0).low != bootstrap(20, statistic, seed=1).low


def test_pxap_has_an_interval_too():
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(12):
        truth = rng.random((8, 8)) < 0.4
        counts.append(count_pixels(0.7 * rng.random((8, 8)) + 0.3 * truth, truth))
    score = bootstrap(12, pooled_average_precision(counts), resamples=100)
    assert score.low < score.value < score.high


def test_a_score_that_is_never_defined_is_nan_with_nan_bounds():
    score = bootstrap(3, weighted_mean(np.full(3, np.nan)))
    assert all(math.isnan(number) for number in (score.value, score.low, score.high))


def test_one_image_has_an_interval_of_no_width():
    score = bootstrap(1, weighted_mean(np.array([0.4])))
    assert (score.low, score.high) == pytest.approx((0.4, 0.4))


LABELS = np.array([0, 0, 0, 1, 1])
P_SECOND = np.array([0.1, 0.4, 0.7, 0.6, 0.9])
PROBABILITIES = np.stack([1 - P_SECOND, P_SECOND], axis=1)


def of_all(statistic):
    return float(statistic(np.ones((1, len(LABELS))))[0])


def test_classification_scores_by_hand():
    predicted = PROBABILITIES.argmax(1)  # the third is wrong
    assert of_all(metrics.class_recall(LABELS, predicted, 0)) == pytest.approx(2 / 3)
    assert of_all(metrics.class_recall(LABELS, predicted, 1)) == 1
    assert of_all(metrics.balanced_accuracy(LABELS, predicted)) == pytest.approx(5 / 6)
    assert of_all(metrics.roc_auc(LABELS, PROBABILITIES)) == pytest.approx(5 / 6)  # one of six pairs is in wrong order
    # bins of 0.9, 0.6, 0.7: gaps 0.1 + 0.1, 0.4 + 0.4, -0.7
    assert of_all(metrics.calibration_error(predicted == LABELS, PROBABILITIES.max(1))) == pytest.approx(1.7 / 5)


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_the_area_under_the_curve_agrees_with_scikit_learn_also_for_resamples(seed, classes):
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 12)])
    probabilities = rng.dirichlet(np.ones(classes), len(labels)).round(1 if seed % 2 else 6)
    weights = rng.integers(1, 4, (1, len(labels))).astype(float)
    targets = range(1, 2) if classes == 2 else range(classes)
    expected = np.mean([roc_auc_score(labels == c, probabilities[:, c], sample_weight=weights[0]) for c in targets])
    assert metrics.roc_auc(labels, probabilities)(weights)[0] == pytest.approx(expected, abs=1e-5)


def test_one_class_has_no_area_under_the_curve():
    assert np.isnan(of_all(metrics.roc_auc(np.zeros(5, int), PROBABILITIES)))
