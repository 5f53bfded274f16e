"""Splits keep patients together, match the shares, and depend only on the seed."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histolumen.data.manifest import SPLITS
from histolumen.data.splitting import stratified_folds, stratified_split
from histolumen.errors import DataError

shares = st.tuples(st.floats(0, 0.49), st.floats(0, 0.49))
images = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "p1", "p2", "p3", "p4", "p5"])), max_size=40)
seeds = st.integers(0, 2**32)


@given(images, shares, seeds)
def test_patients_stay_together_and_every_image_gets_a_split(images, shares, seed):
    splits = stratified_split([label for label, _ in images], [group for _, group in images], *shares, seed)
    assert len(splits) == len(images)
    assert set(splits) <= set(SPLITS)
    of_group = defaultdict(set)
    for (_, group), split in zip(images, splits, strict=True):
        of_group[group].add(split)
    assert all(len(found) == 1 for group, found in of_group.items() if group)


@given(st.lists(st.sampled_from("abc"), max_size=60), shares, seeds)
def test_single_images_miss_the_share_of_their_class_by_less_than_one(labels, shares, seed):
    valid, test = shares
    splits = stratified_split(labels, [""] * len(labels), valid, test, seed)
    counts, totals = Counter(zip(labels, splits, strict=True)), Counter(labels)
    for split, share in zip(SPLITS, (1 - valid - test, valid, test), strict=True):
        for label, total in totals.items():
            assert abs(counts[label, split] - share * total) < 1 + 1e-6


@given(images, seeds)
def test_a_share_of_zero_gets_no_image(images, seed):
    labels, groups = [label for label, _ in images], [group for _, group in images]
    assert set(stratified_split(labels, groups, 0, 0, seed)) <= {"train"}
    assert "valid" not in stratified_split(labels, groups, 0, 0.5, seed)


@given(images, shares, seeds)
def test_the_same_seed_gives_the_same_split(images, shares, seed):
    labels, groups = [label for label, _ in images], [group for _, group in images]
    assert stratified_split(labels, groups, *shares, seed) == stratified_split(labels, groups, *shares, seed)


def test_another_seed_gives_another_split():
    labels, groups = ["a", "b"] * 20, [""] * 40
    assert len({tuple(stratified_split(labels, groups, 0.2, 0.2, seed)) for seed in range(5)}) == 5


def test_patients_with_many_images_match_the_shares_approximately():
    labels = [label for patient in range(40) for label in ["ab"[patient % 2]] * (1 + patient % 5)]
    groups = [f"p{patient}" for patient in range(40) for _ in range(1 + patient % 5)]
    counts = Counter(zip(labels, stratified_split(labels, groups, 0.2, 0.2, 0), strict=True))
    for label in "ab":
        total = labels.count(label)
        assert counts[label, "train"] == pytest.approx(0.6 * total, abs=2)
        assert counts[label, "valid"] == pytest.approx(0.2 * total, abs=2)
        assert counts[label, "test"] == pytest.approx(0.2 * total, abs=2)


@pytest.mark.parametrize(("valid", "test"), [(-0.1, 0.2), (0.2, -0.1), (0.5, 0.5), (0.2, 0.9), (1.0, 0.0)])
def test_shares_that_leave_nothing_to_train_on_are_refused(valid, test):
    with pytest.raises(DataError, match=f"shares of {valid} for validation and {test} for test"):
        stratified_split(["a", "b"], ["", ""], valid, test, 0)


@given(images, st.integers(2, 6), seeds)
def test_folds_keep_patients_together_and_depend_only_on_the_seed(images, folds, seed):
    labels, patients = [label for label, _ in images], [group for _, group in images]
    numbers = stratified_folds(labels, patients, folds, seed)
    assert numbers == stratified_folds(labels, patients, folds, seed)
    assert len(numbers) == len(images)
    assert set(numbers) <= set(range(folds))
    of_patient = defaultdict(set)
    for patient, number in zip(patients, numbers, strict=True):
        of_patient[patient].add(number)
    assert all(len(found) == 1 for patient, found in of_patient.items() if patient)


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(2, 6), seeds)
def test_every_fold_has_its_share_of_each_class(labels, folds, seed):
    numbers = stratified_folds(labels, [""] * len(labels), folds, seed)
    for label in set(labels):
        counts = Counter(number for each, number in zip(labels, numbers, strict=True) if each == label)
        assert max(counts.values()) - min(counts[fold] for fold in range(folds)) <= 1
