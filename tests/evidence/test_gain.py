"""The paired bootstrap: equal to SciPy's and to formulas by hand, with its corrections."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from layerwise.errors import InputError
from layerwise.evidence import (
    Gain,
    Redraws,
    check_resamples,
    check_seed,
    draw_splits,
    item_scores,
    paired_gain,
    row_counts,
    summarise,
)
from layerwise.evidence.gain import SPREAD


def items_of(size, gain=0.1, seed=0):
    """Scores of units by a choice and a baseline: (size, 2)"""
    random = np.random.default_rng(seed)
    baseline = random.normal(size=size)
    return np.stack([baseline + gain + 0.5 * random.normal(size=size), baseline], axis=1)


def width(gain):
    return gain.high - gain.low


def test_units_are_drawn_with_replacement_and_left_out_in_parts():
    redraws, random = Redraws.of(500, seed=3, resamples=20), np.random.default_rng(3)
    for units in redraws.resamples:
        assert np.array_equal(units, random.integers(500, size=500))
    left_out = [sorted(set(range(500)) - set(units)) for units in redraws.without]
    assert left_out == [sorted(part) for part in np.array_split(random.permutation(500), 200)]
    single = Redraws.of(500, seed=3, resamples=20, groups=np.arange(500))
    assert single.groups is None
    assert all(np.array_equal(a, b) for a, b in zip(redraws.resamples, single.resamples, strict=True))
    assert Redraws.of(500, resamples=2, smooth=False).without == []


def test_the_interval_of_a_mean_is_scipys():
    items = items_of(300)
    gain = paired_gain(item_scores(items), [np.arange(300)], size=300, resamples=5000)
    expected = stats.bootstrap(
        ((items[:, 0] - items[:, 1]),), np.mean, n_resamples=5000, method="percentile", random_state=0
    ).confidence_interval
    assert gain.mean == pytest.approx((items[:, 0] - items[:, 1]).mean())
    assert (gain.low, gain.high) == pytest.approx(expected, abs=0.01)


def test_only_reporting_units_are_scored():
    items = items_of(100)
    items[:50] = np.nan
    gain = paired_gain(item_scores(items), [np.arange(50, 100)], size=100)
    assert gain.mean == pytest.approx(np.diff(items[50:, ::-1]).mean())
    error = np.diff(items[50:, ::-1]).std(ddof=1) / np.sqrt(50)
    assert width(gain) == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_several_splits_share_their_draws_and_are_widened():
    items, splits = items_of(120), draw_splits(120, 0.5, 4, 0)
    gain = paired_gain(item_scores(items), splits, size=120, seed=5, resamples=400, smooth=False)
    redraws = Redraws.of(120, seed=5, resamples=400, smooth=False)
    differences = items[:, 0] - items[:, 1]
    means = [[differences[rows[np.isin(rows, test)]].mean() for rows in redraws.resamples] for _, test in splits]
    estimate = np.mean([differences[test].mean() for _, test in splits])
    redrawn = estimate + SPREAD * (np.mean(means, axis=0) - estimate)
    assert gain.mean == pytest.approx(estimate)
    assert (gain.low, gain.high) == pytest.approx(tuple(np.quantile(redrawn, (0.025, 0.975))))


def test_a_function_of_scores_for_each_split():
    items, tests = [items_of(80, seed=seed) for seed in (0, 1)], [np.arange(40), np.arange(40, 80)]
    gain = paired_gain([item_scores(one) for one in items], tests, size=80, resamples=50)
    expected = np.mean([np.diff(one[test, ::-1]).mean() for one, test in zip(items, tests, strict=True)])
    assert gain.mean == pytest.approx(expected)
    with pytest.raises(InputError, match="1 functions of scores for 2 splits"):
        paired_gain([item_scores(items[0])], tests, size=80)


def test_resamples_vary_no_more_than_the_jackknife_says():
    """A statistic that counts the different units grows with the spread of resamples, not with that of samples."""

    def scores(draws):
        return np.array([[draw.mean() / 50 + 5 * len(np.unique(draw)) / len(draw), 0] for draw in draws])

    scaled = paired_gain(scores, [np.arange(100)], size=100, resamples=1000)
    plain = paired_gain(scores, [np.arange(100)], size=100, resamples=1000, smooth=False)
    redraws = Redraws.of(100, resamples=1000)
    left_out = scores(redraws.without)[:, 0]
    redrawn = scores(redraws.resamples)[:, 0]
    scale = min(1.0, np.sqrt(99 * np.var(left_out) / np.var(redrawn)))
    assert scale < 1
    assert width(scaled) == pytest.approx(scale * width(plain))


# Groups


@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.integers(0, 99))
def test_groups_are_drawn_as_a_whole(groups, seed):
    labels = np.array(groups)
    redraws = Redraws.of(len(labels), seed=seed, resamples=5, groups=labels)
    sizes = np.bincount(labels)
    for units in redraws.resamples:
        counts = np.bincount(units, minlength=len(labels))
        assert all(np.ptp(counts[labels == group]) == 0 for group in set(groups))
        assert sum(counts[labels == group][0] for group in set(groups)) == len(set(groups))
    for units in redraws.without:
        left_out = set(groups) - set(labels[units])
        assert len(left_out) == 1
        assert len(units) == len(labels) - sizes[left_out.pop()]


def test_the_interval_of_repeated_units_is_that_of_the_groups():
    few = items_of(100, seed=1)
    many, groups = np.repeat(few, 5, axis=0), np.repeat(np.arange(100), 5)
    gain = paired_gain(item_scores(many), [np.arange(500)], size=500, groups=groups)
    single = paired_gain(item_scores(few), [np.arange(100)], size=100)
    naive = paired_gain(item_scores(many), [np.arange(500)], size=500)
    assert gain.mean == pytest.approx(single.mean)
    assert width(gain) == pytest.approx(width(single))
    assert width(naive) < 0.55 * width(gain)


def test_few_units_are_widened_to_students_t():
    items = items_of(10, seed=2)
    gain = paired_gain(item_scores(items), [np.arange(10)], size=10, resamples=20000)
    interval = stats.ttest_1samp(np.diff(items[:, ::-1]).ravel(), 0).confidence_interval(0.95)
    assert (gain.low, gain.high) == pytest.approx((interval.low, interval.high), abs=0.05)


def test_few_groups_are_widened_to_students_t():
    items, groups = items_of(40, seed=2), np.repeat(np.arange(8), 5)
    gain = paired_gain(item_scores(items), [np.arange(40)], size=40, groups=groups, resamples=20000)
    means = np.diff(items[:, ::-1]).ravel().reshape(8, 5).mean(axis=1)
    interval = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert (gain.low, gain.high) == pytest.approx((interval.low, interval.high), abs=0.03)


def test_a_single_group_that_reports_says_nothing():
    groups = [0] * 20 + [*range(1, 21)]
    gain = paired_gain(item_scores(items_of(40, 5.0)), [np.arange(20)], size=40, groups=groups, resamples=200)
    assert gain.mean == pytest.approx(5, abs=0.5)
    assert np.isnan([gain.low, gain.high, gain.p_value]).all()
    assert not gain.is_sure


def test_the_groups_of_splits_are_drawn():
    items = np.repeat(items_of(60), 2, axis=0)
    splits = draw_splits(120, 0.5, 1, 0, texts=[(f"text {unit // 2}",) for unit in range(120)])
    gain = paired_gain(item_scores(items), splits, size=120)
    assert gain == paired_gain(item_scores(items), [splits[0].test], size=120, groups=splits.groups)
    assert width(gain) > 1.2 * width(paired_gain(item_scores(items), [splits[0].test], size=120))


# Seeds of scores, undefined scores, bad input


def test_a_score_that_depends_on_a_seed_is_averaged_over_starts():
    calls = []

    def scores(draws):
        calls.append(len(draws))
        return np.stack([np.arange(len(draws)) % 4, np.zeros(len(draws))], axis=1)

    assert paired_gain(scores, [np.arange(20)], size=20, resamples=8, smooth=False, starts=4).mean == 1.5
    assert paired_gain(scores, [np.arange(20)], size=20, resamples=8, smooth=False).mean == 0
    assert calls == [12, 9]


def test_undefined_resamples_are_ignored():
    assert summarise(0.5, np.array([np.nan, 1.0, 1.0])) == Gain(0.5, 1.0, 1.0, pytest.approx(2 / 3))
    assert not summarise(0.5, np.array([np.nan])).is_sure


@pytest.mark.parametrize(
    ("low", "high", "p_value", "sure"),
    [
        (0.01, 0.09, 0.01, True),
        (-0.09, -0.01, 0.01, True),
        (-0.01, 0.09, 0.01, False),
        (0.0002, 0.09, 0.051, False),  # 50 of 2,000 resamples are not above 0
        (np.nan, np.nan, np.nan, False),
    ],
)
def test_a_gain_is_sure_by_its_interval_and_its_p_value(low, high, p_value, sure):
    assert Gain(0.05, low, high, p_value).is_sure == sure


def test_row_counts_are_those_of_drawn_rows():
    counts = np.concatenate(list(row_counts(np.random.default_rng(0), 2**17, 5)))
    assert counts.shape == (5, 2**17)
    assert (counts.sum(axis=1) == 2**17).all()
    few = np.concatenate(list(row_counts(np.random.default_rng(0), 4, 3)))
    drawn = np.random.default_rng(0).integers(4, size=(3, 4))
    assert few.tolist() == [np.bincount(rows, minlength=4).tolist() for rows in drawn]


def test_bad_seeds_resamples_and_groups_are_refused():
    with pytest.raises(InputError, match="The seed -1 is negative"):
        check_seed(-1)
    with pytest.raises(InputError, match="0 resamples are not possible; give 1 or more"):
        check_resamples(0)
    with pytest.raises(InputError, match="2 groups for 3 units"):
        Redraws.of(3, groups=[0, 1])


def test_means_of_mixes_that_differ_on_no_drawn_unit_have_an_interval_nevertheless():
    def equal(draws):
        return np.full((len(draws), 2), 0.5)

    gain = paired_gain(equal, [np.arange(48)], size=48, smooth=False, are_means=True)
    assert gain.mean == 0
    assert gain.high == pytest.approx(-gain.low) == pytest.approx(1.96 * 0.5 / 50, rel=0.01)
    assert paired_gain(equal, [np.arange(48)], size=48, smooth=False).high == 0
