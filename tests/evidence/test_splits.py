"""Splits: every unit once, the sizes asked for, and no sentence on both sides."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from layerwise.errors import InputError
from layerwise.evidence import (
    FEWEST,
    connected_groups,
    draw_folds,
    draw_nested_splits,
    draw_splits,
    fixed_splits,
    join_splits,
    near_copies,
)

LEFT = ["A cat sat.", "It rained.", "a cat  sat", "A cat sat.", "Snow fell", "?!"]
RIGHT = ["He left.", "She came.", "Who?", "They ran.", "she CAME", "Prices rose."]


def apart(units):
    """Units of two sentences each, none of which repeats."""
    return [(f"left {unit}", f"right {unit}") for unit in range(units)]


def questions(count, each):
    """The pairs of questions with candidates of their own."""
    return [(f"question {number}", f"answer {number}.{i}") for number in range(count) for i in range(each)]


def chained(units):
    """Every pair shares a sentence with the next."""
    return [(f"sentence {unit}", f"sentence {unit + 1}") for unit in range(units)]


def sentences(units, texts):
    return set(chain.from_iterable(texts[unit] for unit in units))


@pytest.mark.parametrize("texts", [None, apart(97)])
@pytest.mark.parametrize(("dev", "n", "seed"), [(0.5, 1, 0), (60, 3, 5), (0.25, 2, 1)])
def test_without_repeated_sentences_splits_are_plain_permutations(texts, dev, n, seed):
    splits = draw_splits(97, dev, n, seed, texts=texts)
    random, size = np.random.default_rng(seed), round(dev * 97) if dev < 1 else dev
    for first, second in splits:
        order = random.permutation(97)
        assert np.array_equal(first, order[:size])
        assert np.array_equal(second, order[size:])
    assert splits.groups.tolist() == list(range(97))
    assert (splits.left_out, splits.notes, splits.units, len(splits)) == (0, (), 97, n)
    assert splits[0] is splits.parts[0]


def test_questions_with_candidates_split_by_question():
    texts = questions(120, 5)
    splits = draw_splits(600, 0.6, 3, 0, texts=texts)
    for dev, test in splits:
        assert (len(dev), len(test)) == (360, 240)
        assert not sentences(dev, texts) & sentences(test, texts)
    assert splits.groups.tolist() == [number for number in range(120) for _ in range(5)]
    assert splits.notes == ("600 pairs are 120 groups that share sentences, each of which either chooses or reports",)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(100, 199)), min_size=20, max_size=80), st.integers(0, 999))
def test_no_sentence_chooses_and_reports_and_every_unit_is_on_one_side(pairs, seed):
    texts = [tuple(map(str, pair)) for pair in pairs]
    groups = connected_groups(len(texts), texts)
    largest = np.bincount(groups).max()
    assume(largest <= len(texts) / 2)
    splits = draw_splits(len(texts), 0.5, 2, seed, texts=texts)
    for dev, test in splits:
        assert not sentences(dev, texts) & sentences(test, texts)
        assert min(len(dev), len(test)) >= FEWEST
        assert sorted([*dev, *test]) == list(range(len(texts)))
        assert abs(len(dev) - round(len(texts) / 2)) <= largest / 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_connected_groups_are_the_components_by_brute_force(pairs):
    texts = [tuple(map(str, pair)) for pair in pairs]
    labels = list(range(len(texts)))
    for _ in texts:
        for first in range(len(texts)):
            for second in range(len(texts)):
                if set(texts[first]) & set(texts[second]):
                    labels[first] = labels[second] = min(labels[first], labels[second])
    names = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    assert connected_groups(len(texts), texts).tolist() == [names[label] for label in labels]


def test_declared_groups_stay_together_and_join_what_sentences_join():
    groups = np.repeat(["a", "b", "c", "d"], 10)
    for dev, test in draw_splits(40, 0.5, 4, 0, groups=groups):
        assert not set(groups[dev]) & set(groups[test])
        assert len(dev) == 20
    texts = apart(40)
    texts[0] = texts[39]
    assert connected_groups(40, texts, groups).tolist() == [0] * 10 + [1] * 10 + [2] * 10 + [0] * 10


def test_a_group_of_most_units_leaves_out_leaking_ones_and_says_so():
    texts = chained(200)
    splits = draw_splits(200, 0.5, 1, 0, texts=texts)
    ((dev, test),) = splits
    assert np.array_equal(dev, np.random.default_rng(0).permutation(200)[:100])
    assert not sentences(dev, texts) & sentences(test, texts)
    assert splits.left_out == 100 - len(test) > 0
    assert splits.notes == (
        f"{splits.left_out} of 100 reporting pairs are left out: they share a sentence with one that chooses",
        "200 of 200 pairs are connected by shared sentences, so that no split keeps all of them",
    )
    assert np.bincount(splits.groups).max() <= 2


def test_a_sentence_of_all_units_is_refused_where_nothing_is_left_to_report():
    texts = [("the same", f"answer {unit}") for unit in range(60)]
    with pytest.raises(InputError, match="30 of 30 reporting pairs share a sentence with one that chooses"):
        draw_splits(60, 0.5, 1, 0, texts=texts)


def test_a_group_of_most_units_that_fits_on_one_side_is_kept_whole():
    texts = [("the same", f"answer {unit}") for unit in range(70)] + apart(30)
    splits = draw_splits(100, 20, 1, 0, texts=texts)
    assert splits.left_out == 0
    assert [len(side) for side in splits[0]] == [20, 80]
    assert np.bincount(splits.groups).max() == 1  # a sentence of so many pairs is a part of the task


def test_few_groups_choose_at_least_as_many_as_must():
    splits = draw_splits(120, 10, 1, 0, texts=questions(4, 30))
    assert [len(side) for side in splits[0]] == [30, 90]
    assert splits.notes[0].endswith("so that 30 pairs choose instead of 10")


@pytest.mark.parametrize("dev", [0, 4, 16, 20, 1.0, 0.1, 0.9, -3])
def test_splits_with_too_few_units_on_a_side_are_refused(dev):
    with pytest.raises(InputError, match=r"20 queries, -?\d+ of which choose, are too few: at least 5"):
        draw_splits(20, dev, 1, 0, unit="queries")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "0 splits are not possible; 1 or more are"),
        ({"seed": -1}, "The seed -1 is negative"),
        ({"dev": 2.5}, "2.5 dev pairs are not possible; give a whole number"),
        ({"dev": float("nan")}, "nan dev pairs are not possible"),
        ({"texts": apart(3)}, "3 texts for 30 pairs: the lengths differ"),
        ({"groups": [1, 2]}, "2 groups for 30 pairs: the lengths differ"),
        ({"groups": [1] * 28 + [2] * 2}, "30 pairs are in 2 groups that share sentences, which leaves 2 pairs"),
    ],
)
def test_bad_input_is_refused(change, message):
    options = {"units": 30, "dev": 0.5, "n": 1, "seed": 0} | change
    with pytest.raises(InputError, match=message):
        draw_splits(**options)


# Declared splits


def test_declared_reporting_units_that_share_a_sentence_are_left_out():
    texts = apart(30)
    texts[20] = ("left 0", "another")
    parts = [(np.arange(15), np.arange(15, 30))]
    splits = fixed_splits(parts, texts=texts)
    assert splits[0].test.tolist() == [15, 16, 17, 18, 19, *range(21, 30)]
    assert splits.left_out == 1
    assert splits.notes == ("1 of 15 reporting pairs are left out: they share a sentence with one that chooses",)
    assert splits.groups[0] == splits.groups[20]
    assert fixed_splits(parts, texts=apart(30)).notes == ()
    assert len(fixed_splits(parts)[0].test) == 15


def test_reporting_units_that_remain_must_differ_in_their_grades():
    parts = [(np.arange(15), np.arange(15, 30))]
    with pytest.raises(InputError, match="The 15 reporting pairs all have the same score"):
        fixed_splits(parts, texts=apart(30), gold=[*range(15), *[1] * 15])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "No splits are given"),
        ([(range(10), range(9, 20))], "1 pairs both choose and report, 9 among them"),
        ([(range(3), range(9, 20))], "3 pairs choose and 11 report; at least 5"),
        ([(range(10), range(10, 40))], "A split names unit 39; the 30 pairs end at 29"),
    ],
)
def test_bad_declared_splits_are_refused(parts, message):
    with pytest.raises(InputError, match=message):
        fixed_splits([tuple(np.array(side) for side in part) for part in parts], texts=apart(30))


def test_other_case_spaces_and_punctuation_are_counted_but_not_left_out():
    texts = list(zip(LEFT, RIGHT, strict=True))
    dev, test = np.array([0, 1]), np.array([2, 3, 4, 5])
    assert near_copies([(dev, test)], texts) == 2
    assert near_copies([(dev, test), (dev, np.array([5]))], texts) == 2


# Several tasks


def test_splits_of_several_tasks_are_numbered_one_after_the_other():
    first, second = draw_splits(20, 0.5, 2, 0, texts=questions(10, 2)), draw_splits(30, 0.5, 2, 0)
    joined = join_splits([first, second])
    for number, (dev, test) in enumerate(joined):
        assert dev.tolist() == [*first[number].dev, *(20 + second[number].dev)]
        assert test.tolist() == [*first[number].test, *(20 + second[number].test)]
    assert joined.groups.tolist() == [*first.groups, *(10 + second.groups)]
    assert joined.notes == first.notes


def test_a_sentence_that_chooses_in_one_task_does_not_report_in_another():
    texts = apart(30)
    tasks = [draw_splits(30, 0.5, 1, seed, texts=texts) for seed in (0, 1)]
    joined = join_splits(tasks, texts=[*texts, *texts], unit="rows")
    ((dev, test),) = joined
    assert joined.left_out > 0
    assert not sentences(dev % 30, texts) & sentences(test % 30, texts)
    assert joined.groups.tolist() == [*range(30), *range(30)]


def test_tasks_with_other_numbers_of_splits_are_refused():
    with pytest.raises(InputError, match="The tasks have 1, 2 splits"):
        join_splits([draw_splits(20, 0.5, n, 0) for n in (1, 2)])


# Nested splits


@pytest.mark.parametrize("size", [1.0, 0.5])
def test_nested_splits_are_those_of_the_papers_protocol(size):
    splits = draw_nested_splits(83, 3, 7, test=0.15, inner=4, dev=0.18, size=size)
    for number, (split, folds) in enumerate(zip(splits, splits.folds, strict=True)):
        random = np.random.default_rng([7, number])
        order = random.permutation(83)
        rest = order[: round(size * 70)]  # 83 x 0.15 is 12.45, so 13 report
        assert np.array_equal(split.dev, rest)
        assert np.array_equal(split.test, order[70:])
        for fold in folds:
            inner = random.permutation(rest)
            assert np.array_equal(fold.train, inner[: int(0.82 * len(rest))])
            assert np.array_equal(fold.dev, inner[int(0.82 * len(rest)) :])


def test_repeated_texts_stay_together_in_nested_splits():
    texts = [(f"text {unit // 3}",) for unit in range(90)]
    splits = draw_nested_splits(90, 2, 0, test=0.2, inner=3, dev=0.2, texts=texts)
    for (rest, test), folds in zip(splits, splits.folds, strict=True):
        assert sorted([*rest, *test]) == list(range(90))
        assert len(test) == 18
        assert not sentences(rest, texts) & sentences(test, texts)
        for train, dev in folds:
            assert sorted([*train, *dev]) == sorted(rest)
            assert not sentences(train, texts) & sentences(dev, texts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "0 splits are not possible"),
        ({"test": 1.5}, "test is 1.5; it must be a share of the rows"),
        ({"dev": 0}, "dev is 0; it must be a share of the rows"),
        ({"units": 3, "dev": 0.9}, "too few rows: a split leaves 2 of them to train and to choose by"),
        ({"texts": [("same",)] * 40}, "too few rows"),
    ],
)
def test_bad_nested_splits_are_refused(change, message):
    options = {"units": 40, "n": 2, "seed": 0, "test": 0.15, "inner": 2, "dev": 0.2} | change
    with pytest.raises(InputError, match=message):
        draw_nested_splits(**options)


def test_folds_of_declared_training_rows():
    folds = draw_folds(np.arange(10, 60), 3, 0.2, np.random.default_rng(0))
    assert [len(side) for fold in folds for side in fold] == [40, 10] * 3
    assert all(sorted([*train, *dev]) == list(range(10, 60)) for train, dev in folds)
