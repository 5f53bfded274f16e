"""The temperature: never changes the class, has an optimum for any labels, and is reversible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from histolumen.calibration import HIGHEST, LOWEST, fit_temperature, with_temperature


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=5), st.floats(LOWEST, HIGHEST))
def test_the_order_of_the_classes_stays_and_the_change_is_reversible(values, temperature):
    probabilities = np.array(values) / np.sum(values)
    calibrated = with_temperature(probabilities, temperature)
    assert calibrated.sum() == pytest.approx(1)
    assert calibrated[probabilities.argmax()] == pytest.approx(calibrated.max())
    assert with_temperature(calibrated, 1 / temperature) == pytest.approx(probabilities, abs=1e-6)


def test_a_probability_by_hand():
    assert with_temperature(np.array([0.9, 0.1]), 2) == pytest.approx([0.75, 0.25])  # 3 : 1, the root of 9 : 1
    assert with_temperature(np.array([1.0, 0.0]), 2).tolist() == pytest.approx([1, 0])


def test_a_model_that_is_wrong_more_often_than_it_says_becomes_less_certain():
    certain = np.tile([0.99, 0.01], (100, 1))
    labels = np.array([0] * 80 + [1] * 20)
    temperature = fit_temperature(certain, labels)
    assert with_temperature(certain[0], temperature)[0] == pytest.approx(0.8, abs=0.01)


def test_a_model_that_is_right_more_often_than_it_says_becomes_more_certain():
    unsure = np.tile([0.8, 0.2], (200, 1))
    temperature = fit_temperature(unsure, np.array([0] * 184 + [1] * 16))
    assert with_temperature(unsure[0], temperature)[0] == pytest.approx(0.92, abs=0.01)


@pytest.mark.parametrize("count", [1, 3, 18])
def test_labels_that_are_all_right_do_not_make_a_model_certain(count):
    sure = np.tile([0.999, 0.001], (count, 1))
    calibrated = with_temperature(sure[0], fit_temperature(sure, np.zeros(count, int)))
    assert calibrated[0] == pytest.approx((count + 1) / (count + 2), abs=0.01)  # Laplace's rule of succession


def test_without_labels_nothing_changes():
    assert fit_temperature(np.zeros((0, 2)), np.zeros(0, int)) == 1
    assert LOWEST <= fit_temperature(np.array([[1.0, 0.0]]), np.array([1])) <= HIGHEST
