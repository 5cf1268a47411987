"""Choosing honestly: beams, weights, splits, bootstrap, stability, the table of scores, and LayerSearch around them."""

import csv
import json
import logging
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import average_precision_score

from layerwise import Head, LayerEncoder, LayerModel, LayerSearch, Mean, parse_mix
from layerwise.errors import InputError, LayerwiseError, MixError
from layerwise.metrics import redraw_pearson, redraw_spearman
from layerwise.search import (
    Choice,
    ScoredSet,
    ScoreTable,
    Space,
    bootstrap_gain,
    choose,
    halves,
    layers_of,
    random_splits,
)
from layerwise.search.beam import beam_search
from layerwise.search.metrics import METRICS, counts_of
from layerwise.search.problems import PairProblem
from layerwise.search.select import SPREAD
from layerwise.search.sources import FixedSimilarities, PairGrams
from layerwise.search.spaces import mask_of, membership
from layerwise.search.stability import stability
from layerwise.search.weights import search_weights


def cosine(left, right):
    return np.round((left * right).sum(-1) / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1), 12)


def brute_force(left, right, gold, rows=None):
    """Set -> Spearman, for all sets."""
    rows = np.arange(len(gold)) if rows is None else rows
    layers, found = range(left.shape[1]), {}
    for chosen in (list(chosen) for size in layers for chosen in combinations(layers, size + 1)):
        similarities = cosine(left[rows][:, chosen].mean(1), right[rows][:, chosen].mean(1))
        found[tuple(chosen)] = spearmanr(similarities, gold[rows]).statistic
    return found


def noise_pairs(pairs=120, layers=4, width=6, seed=0):
    """Views that know nothing about the grades."""
    random = np.random.default_rng(seed)
    return *random.normal(size=(2, pairs, layers, width)), random.integers(0, 11, size=pairs) / 2


def graded_pairs(pairs=120, layers=4, width=8, seed=0):
    """Every layer knows something, some more."""
    random = np.random.default_rng(seed)
    gold = np.round(random.random(pairs) * 5, 1)
    left = random.normal(size=(pairs, layers, width))
    spread = (5.5 - gold)[:, None, None] * np.linspace(0.2, 0.6, layers)[:, None]
    return left, left + random.normal(size=left.shape) * (spread + random.random((1, layers, 1))), gold


def planted_layer(pairs=150, layers=4, good=1, seed=0):
    """One layer's similarity is the grade, the others know nothing."""
    random = np.random.default_rng(seed)
    gold = np.linspace(-0.95, 0.95, pairs)
    left, right = random.normal(size=(2, pairs, layers, 2))
    angle = np.arccos(gold)
    left[:, good] = 3, 0
    right[:, good] = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return left, right, gold


def planted_mix(weights, pairs=150, layers=6, width=8, seed=0):
    """Layers whose noise cancels only in a mix by these weights (layer -> weight, two of them)."""
    random = np.random.default_rng(seed)
    signal, hidden = random.normal(size=(2, 2, pairs, width))
    left, right = random.normal(size=(2, pairs, layers, width)) * 4
    (one, share), (other, rest) = weights.items()
    for side, meaning, disturbance in zip((left, right), signal, hidden, strict=True):
        side[:, one] = meaning + disturbance / share
        side[:, other] = meaning - disturbance / rest
    return left, right, cosine(*signal)


def problem_of(left, right, gold, metric="spearman"):
    return PairProblem(PairGrams.of(left, right), np.asarray(gold, dtype=float), METRICS[metric])


def as_scores(masks, scores):
    return {layers_of(int(mask)): float(score) for mask, score in zip(masks, scores, strict=True)}


def table_of(scores, pooling="mean"):
    """From layers -> score."""
    masks = np.array([mask_of(layers) for layers in scores], dtype=np.uint64)
    return ScoreTable({pooling: (masks, np.array(list(scores.values()), dtype=float))})


# Beam and greedy search


@pytest.mark.parametrize("width", [1, 3, 32])
def test_a_beam_scores_a_part_of_all_sets_and_scores_it_the_same(width):
    problem = problem_of(*noise_pairs(60, 8))
    everything = as_scores(*problem.scan(Space()))
    found = as_scores(*beam_search(problem, Space(), width=width))
    assert found.keys() <= everything.keys()
    assert len(found) < len(everything)
    assert found == pytest.approx({chosen: everything[chosen] for chosen in found}, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_no_single_change_improves_what_a_beam_finds(seed):
    problem = problem_of(*noise_pairs(60, 7, seed=seed))
    everything = as_scores(*problem.scan(Space()))
    found = as_scores(*beam_search(problem, Space(), width=1))
    best = set(max(found, key=found.get))
    flips = [best ^ {layer} for layer in range(7)]
    swaps = [best ^ {one, other} for one, other in combinations(range(7), 2)]
    assert all(everything[tuple(sorted(near))] <= found[tuple(sorted(best))] for near in flips + swaps if near)


def test_a_beam_finds_the_planted_set_among_more_than_can_be_searched_whole():
    left, right, gold = planted_mix({7: 0.5, 23: 0.5}, layers=30)
    search = LayerSearch(dev=None).fit(left, right, gold)  # 2^30 sets: a beam by itself
    assert len(search.table_) < 20_000
    assert search.best_.layers == (7, 23)
    assert search.best_.dev == pytest.approx(1, abs=1e-9)


def test_spaces_above_the_limit_are_searched_by_a_beam(monkeypatch):
    left, right, gold = noise_pairs(60, 8)
    monkeypatch.setattr(choose, "EXHAUSTIVE", 254)
    assert len(LayerSearch(dev=None).fit(left, right, gold).table_) < 255
    assert len(LayerSearch(dev=None, method="exhaustive").fit(left, right, gold).table_) == 255
    monkeypatch.setattr(choose, "EXHAUSTIVE", 255)
    assert len(LayerSearch(dev=None).fit(left, right, gold).table_) == 255


@pytest.mark.parametrize("method", ["beam", "greedy"])
@pytest.mark.parametrize(
    "space",
    [
        "up to 2",
        "exactly 3",
        "at least 5",
        "with 2,5",
        "with 0; up to 3; without 7",
        "without 0-3",
        "0,2,4; exactly 2",
        "contiguous",
        "contiguous; exactly 4",
        "contiguous; with 1,4",
        "with 0-7",
    ],
)
def test_beams_stay_in_their_space(method, space):
    left, right, gold = noise_pairs(60, 8, seed=5)
    allowed = {layers_of(int(mask)) for masks in Space.parse(space).masks(8, 99) for mask in masks}
    search = LayerSearch(dev=None, method=method, space=space).fit(left, right, gold)
    assert {found.layers for found in search.table_} <= allowed
    assert search.best_.layers in allowed


def test_a_beam_through_layers_without_a_score():
    left, right, gold = planted_layer(layers=5, good=3)
    right[:, :2] = left[:, :2]  # NaN
    assert LayerSearch(dev=None, method="greedy").fit(left, right, gold).best_.layers == (3,)


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_beams_of_several_splits_give_one_choice(method):
    left, right, gold = noise_pairs(120, 12, seed=1)
    search = LayerSearch(method=method, space="exactly 5", dev=60, splits=5).fit(left, right, gold)
    assert len(search.best_.layers) == 5


# Continuous weights


@pytest.mark.parametrize("metric", ["spearman", "pearson", "cosine_ap", "cosine_accuracy"])
def test_weights_are_never_worse_than_their_starts(metric, monkeypatch):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 60)
    left, right, gold = graded_pairs(60, 4)
    problem = problem_of(left, right, gold > 3 if metric in ("cosine_ap", "cosine_accuracy") else gold, metric)
    starts = np.concatenate([np.eye(4), np.ones((1, 4)), [[0.5, 0.2, 0.2, 0.1]]])
    found = search_weights(problem, starts)
    assert found.score >= problem.scores(starts).max() - 1e-12
    assert found.score == pytest.approx(problem.scores(found.weights[None])[0], abs=1e-12)
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert (found.weights >= 0).all()


def test_planted_weights_are_found():
    left, right, gold = planted_mix({1: 0.25, 4: 0.75}, pairs=200)
    sets, weights = (LayerSearch(dev=None, method=method).fit(left, right, gold) for method in ("auto", "weights"))
    mix = weights.best_.mix
    shares = dict(zip(mix.layers, mix.shares, strict=True))
    assert sum(mix.shares) == pytest.approx(1)
    assert shares[1] == pytest.approx(0.25, abs=0.03)
    assert shares[4] == pytest.approx(0.75, abs=0.03)
    assert weights.best_.dev > 0.98 > sets.best_.dev + 0.02
    assert weights.score(left, right, gold) == pytest.approx(weights.best_.dev, abs=1e-12)
    assert np.allclose(weights.transform(left), np.einsum("plw,l->pw", left, weights.best_.weights(6)[0]))


def test_weights_on_dev_pairs_are_at_least_as_good_as_the_best_set():
    left, right, gold = graded_pairs(100, 5, seed=2)
    sets = LayerSearch(dev=None).fit(left, right, gold)
    assert LayerSearch(dev=None, method="weights").fit(left, right, gold).best_.dev >= sets.best_.dev - 1e-12


@pytest.mark.parametrize("space", [Space(highest=1), Space(exclude=(3,)), Space(only=(0, 2))], ids=str)
def test_weights_stay_in_their_space(space, monkeypatch):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 60)
    left, right, gold = graded_pairs(60, 4, seed=3)
    _, free = space.bits(4)
    search = LayerSearch(dev=None, method="weights", space=space).fit(left, right, gold)
    assert set(search.best_.layers) <= set(free)


def test_one_split_with_weights_is_its_own_choice(monkeypatch):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 60)
    left, right, gold = graded_pairs(120, 4, seed=4)
    search = LayerSearch(method="weights", dev=60, resamples=50).fit(left, right, gold)
    (split,) = search.report_.splits
    assert str(search.best_.mix) == split.mix
    (_, test) = random_splits(120, 60, 1, 0)[0]
    assert search.best_.test == pytest.approx(search.score(left[test], right[test], gold[test]), abs=1e-12)


def test_weights_of_splits_are_averaged_within_a_pooling(monkeypatch):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 40)
    left, right, gold = noise_pairs(120, 3, seed=2)
    other_left, other_right, _ = noise_pairs(120, 3, seed=3)
    search = LayerSearch(method="weights", dev=60, splits=4, resamples=20)
    search.fit({"mean": left, "cls": other_left}, {"mean": right, "cls": other_right}, gold)
    mixes = [parse_mix(split.mix) for split in search.report_.splits]
    assert {mix.pooling for mix in mixes} == {"mean", "cls"}  # or there is nothing to see
    own = [Choice(mix, 0.0).weights(3)[0] for mix in mixes if mix.pooling == search.best_.pooling]
    assert search.best_.weights(3)[0] == pytest.approx(np.mean(own, axis=0), abs=1e-9)


# Resamples


@pytest.mark.parametrize("redraw", [redraw_pearson, redraw_spearman])
@pytest.mark.filterwarnings("error")
def test_a_resample_without_pairs_has_no_correlation_and_says_nothing(redraw):
    counts = counts_of([np.array([], dtype=np.int64), np.array([0, 1, 2])], 3)
    found = redraw(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]), counts)
    assert np.isnan(found[0])
    assert found[1] > 0.9


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_redrawn_correlations_are_scipys_on_the_drawn_pairs(data):
    pairs = data.draw(st.integers(5, 12))
    similarities = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=pairs, max_size=pairs))) / 4
    gold = np.array(data.draw(st.lists(st.integers(0, 5), min_size=pairs, max_size=pairs)), dtype=float)
    draw = st.lists(st.integers(0, pairs - 1), min_size=2, max_size=pairs)
    draws = [np.array(rows) for rows in data.draw(st.lists(draw, min_size=1, max_size=4))]
    counts = counts_of(draws, pairs)
    for redraw, scipys in ((redraw_spearman, spearmanr), (redraw_pearson, pearsonr)):
        for rows, found in zip(draws, redraw(similarities, gold, counts), strict=True):
            flat = np.ptp(similarities[rows]) == 0 or np.ptp(gold[rows]) == 0
            expected = np.nan if flat else scipys(similarities[rows], gold[rows]).statistic
            assert found == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("rows", [3, 17])  # by counts, and one after the other
@pytest.mark.parametrize("metric", ["spearman", "pearson", "cosine_ap", "cosine_accuracy"])
def test_redrawn_scores_are_those_of_the_drawn_pairs(metric, rows):
    left, right, gold = graded_pairs(40, 5)
    right[::4] = left[::4]
    gold = (gold > 2.5).astype(float) if metric in ("cosine_ap", "cosine_accuracy") else gold
    random = np.random.default_rng(0)
    draws = [random.integers(40, size=40) for _ in range(5)] + [np.arange(20), np.full(9, 3)]
    weights = membership(np.arange(1, rows + 1, dtype=np.uint64), 5)
    found = problem_of(left, right, gold, metric).redrawn(weights, draws)
    for number, draw in enumerate(draws[:-1]):
        expected = problem_of(left[draw], right[draw], gold[draw], metric).scores(weights)
        assert found[number] == pytest.approx(expected, abs=1e-9), number
    assert np.isnan(found[-1]).all()  # one grade only


def gain_of(problems, best, last, rows, **settings_):
    return bootstrap_gain(problems, [(best, last, rows)], **settings_)


def drawn_in(gains, gain, pairs):
    """Resampled gains with the jackknife's variance where that is smaller."""
    estimate = gain(np.arange(pairs))
    without = [gain(np.delete(np.arange(pairs), pair)) for pair in range(pairs)]
    scale = min(1, np.sqrt((pairs - 1) * np.var(without) / np.var(gains)))
    return estimate + scale * (gains - estimate)


def test_the_gain_is_a_paired_bootstrap_of_the_jackknifes_variance():
    left, right, gold = graded_pairs(60, 3, seed=1)
    best, last = (Choice(Mean.of(layer), 0.0) for layer in (0, 2))
    found = gain_of({"mean": problem_of(left, right, gold)}, best, last, np.arange(60), seed=3, resamples=150)

    def gain(rows):
        scores = [spearmanr(cosine(left[rows, layer], right[rows, layer]), gold[rows]).statistic for layer in (0, 2)]
        return scores[0] - scores[1]

    random = np.random.default_rng(3)
    gains = np.array([gain(random.integers(60, size=60)) for _ in range(150)])
    assert found.mean == pytest.approx(gain(np.arange(60)), abs=1e-9)
    gains = drawn_in(gains, gain, 60)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(gains, (0.025, 0.975))), abs=1e-9)
    tail = min((gains <= 0).sum(), (gains >= 0).sum())
    assert found.p_value == pytest.approx(min(1, 2 * (tail + 1) / 151))


def test_the_gain_of_several_splits_is_their_mean_on_common_draws():
    left, right, gold = graded_pairs(60, 3, seed=1)
    problems, last = {"mean": problem_of(left, right, gold)}, Choice(Mean.of(2), 0.0)
    chosen, tests = (0, 1, 0), [rows for _, rows in random_splits(60, 0.5, 3, 5)]
    choices = [(Choice(Mean.of(layer), 0.0), last, rows) for layer, rows in zip(chosen, tests, strict=True)]
    found = bootstrap_gain(problems, choices, seed=3, resamples=150)

    def score(layer, rows):
        return spearmanr(cosine(left[rows, layer], right[rows, layer]), gold[rows]).statistic

    def mean_gain(draw):
        drawn = [draw[np.isin(draw, rows)] for rows in tests]
        return np.mean([score(layer, rows) - score(2, rows) for layer, rows in zip(chosen, drawn, strict=True)])

    random, estimate = np.random.default_rng(3), mean_gain(np.arange(60))
    gains = np.array([mean_gain(random.integers(60, size=60)) for _ in range(150)])
    assert found.mean == pytest.approx(estimate, abs=1e-9)
    low, high = np.quantile(drawn_in(gains, mean_gain, 60), (0.025, 0.975))
    assert (found.low, found.high) == pytest.approx(
        (estimate + SPREAD * (low - estimate), estimate + SPREAD * (high - estimate)), abs=1e-9
    )


@pytest.mark.parametrize("metric", ["cosine_ap", "cosine_accuracy"])
def test_scores_that_single_pairs_decide_keep_their_resamples(metric):
    """The jackknife does not hold for a threshold or a place in a list."""
    left, right, gold = graded_pairs(60, 3, seed=1)
    problem = problem_of(left, right, (gold > 2.5).astype(float), metric)
    best, last = (Choice(Mean.of(layer), 0.0) for layer in (0, 2))
    found = gain_of({"mean": problem}, best, last, np.arange(60), seed=3, resamples=80)
    random = np.random.default_rng(3)
    scores = problem.redrawn(
        membership(np.array([1, 4], dtype=np.uint64), 3), [random.integers(60, size=60) for _ in range(80)]
    )
    low, high = np.quantile(scores[:, 0] - scores[:, 1], (0.025, 0.975))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_few_pairs_that_two_mixes_order_nearly_alike_do_not_widen_the_interval():
    """Of two mixes that differ little, resamples with their ties say more about themselves than about the mixes."""
    random = np.random.default_rng(0)
    gold = random.normal(size=2000)
    first = gold + random.normal(size=2000)
    layers = np.stack([first, first + 0.3 * random.normal(size=2000)])
    problem = PairProblem(FixedSimilarities(torch.from_numpy(layers)), gold, METRICS["spearman"])

    def gain(rows):
        one, other = (spearmanr(layer[rows], gold[rows]).statistic for layer in layers)
        return one - other

    widths, plain = [], []
    for start in range(0, 2000, 50):
        rows = np.arange(start, start + 50)
        best, last = (Choice(Mean.of(layer), 0.0) for layer in (0, 1))
        found = gain_of({"mean": problem.pick(rows)}, best, last, np.arange(50), resamples=200)
        widths.append(found.high - found.low)
        resampled = problem.redrawn(np.eye(2), [random.choice(rows, 50) for _ in range(200)])
        plain.append(np.ptp(np.quantile(resampled[:, 0] - resampled[:, 1], (0.025, 0.975))))
    truth = 2 * 1.96 * np.std([gain(np.arange(start, start + 50)) for start in range(0, 2000, 50)])
    assert truth < np.mean(widths) < np.mean(plain)


def test_the_interval_covers_a_planted_gain():
    """Pearson's correlation of layers with known noise; the true gain is that of very many pairs."""

    def draw(pairs, seed):
        random = np.random.default_rng(seed)
        gold = random.uniform(-0.9, 0.9, size=pairs)
        seen = np.clip(gold[:, None] + random.normal(size=(pairs, 2)) * [0.4, 0.8], -3, 3) / 3
        angle = np.arccos(seen)
        return np.tile([1.0, 0.0], (pairs, 2, 1)), np.stack([np.cos(angle), np.sin(angle)], axis=-1), gold

    best, last = (Choice(Mean.of(layer), 0.0) for layer in (0, 1))

    def gain(pairs, seed, resamples):
        problems = {"mean": problem_of(*draw(pairs, seed), "pearson")}
        return gain_of(problems, best, last, np.arange(pairs), resamples=resamples)

    left, right, gold = draw(50_000, 99)
    first, second = (pearsonr(cosine(left[:, layer], right[:, layer]), gold).statistic for layer in (0, 1))
    truth = first - second
    found = [gain(150, seed, 200) for seed in range(1000, 1060)]
    assert 0.1 < truth < 0.4
    assert sum(one.low <= truth <= one.high for one in found) >= 54  # of 57 expected
    assert np.mean([one.mean for one in found]) == pytest.approx(truth, abs=0.03)
    assert sum(one.p_value < 0.05 for one in found) >= 57
    assert all(0 < one.p_value <= 1 and one.low < one.mean < one.high for one in found)


def test_a_mix_gains_nothing_over_itself():
    left, right, gold = graded_pairs(50, 3)
    same = Choice(Mean.of(2), 0.0)
    found = gain_of({"mean": problem_of(left, right, gold)}, same, same, np.arange(50), resamples=100)
    assert (found.mean, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_a_search_that_chooses_the_last_layer_reports_no_gain():
    left, right, gold = planted_layer(400, good=3)
    search = LayerSearch(resamples=100).fit(left, right, gold)
    gain = search.report_.gain
    assert search.best_.layers == (3,)
    assert (gain.mean, gain.low, gain.high, gain.p_value) == (0, 0, 0, 1)
    assert search.warnings_ == []


def test_a_last_layer_without_a_score_still_gives_a_report():
    left, right, gold = graded_pairs(120, 3)
    right[:, 2] = left[:, 2]
    search = LayerSearch(resamples=50).fit(left, right, gold)
    assert np.isnan(search.last_.dev)
    assert np.isnan(search.report_.gain.mean)
    assert search.report_.mean("test") > 0
    assert search.verdict_.use == search.best_  # a layer that tells no pairs apart is not kept
    assert str(search.verdict_).startswith("Use layer")


# Splits


@given(st.integers(10, 60), st.integers(1, 4), st.integers(0, 10**6), st.data())
@settings(max_examples=60, deadline=None)
def test_splits_part_all_pairs(pairs, splits, seed, data):
    dev = data.draw(st.integers(5, pairs - 5))
    parts = random_splits(pairs, dev, splits, seed)
    assert len(parts) == splits
    for chosen, kept in parts:
        assert len(chosen) == dev
        assert sorted([*chosen, *kept]) == list(range(pairs))
    again = random_splits(pairs, dev, splits, seed)
    assert all(
        np.array_equal(a, b) for one, other in zip(parts, again, strict=True) for a, b in zip(one, other, strict=True)
    )


def test_a_share_of_the_pairs_may_choose():
    assert [len(rows) for rows in random_splits(200, 0.25, 1, 0)[0]] == [50, 150]
    assert [len(rows) for rows in random_splits(200, 25.0, 1, 0)[0]] == [25, 175]


def test_a_share_may_be_any_float():
    assert [len(rows) for rows in random_splits(200, np.float32(0.25), 1, 0)[0]] == [50, 150]


def test_splits_differ_by_number_and_seed():
    parts = [random_splits(50, 25, 2, seed)[number][0].tolist() for seed in (0, 1) for number in (0, 1)]
    assert len({tuple(sorted(part)) for part in parts}) == 4


@pytest.mark.parametrize("dev", [0, 4, 16, 20, 1.0, 0.1, 0.9, -3])
def test_splits_with_too_few_pairs_on_a_side_are_refused(dev):
    with pytest.raises(InputError, match=r"20 pairs, -?\d+ of which choose, are too few: at least 5"):
        random_splits(20, dev, 1, 0)


def test_no_splits_are_refused():
    left, right, gold = noise_pairs()
    with pytest.raises(InputError, match="-1 splits are not possible; 1 or more are"):
        LayerSearch(dev=50, splits=-1).fit(left, right, gold)


@pytest.mark.parametrize(("dev", "splits"), [(60, 1), (0.5, 3), (80, 2)])
def test_every_split_scores_as_by_hand(dev, splits):
    left, right, gold = graded_pairs(120, 3, seed=7)
    search = LayerSearch(dev=dev, splits=splits, seed=5, resamples=50).fit(left, right, gold)
    parts = random_splits(120, dev, splits, 5)
    report, by_dev = search.report_, []
    assert report.dev_pairs == len(parts[0][0])
    assert report.test_pairs == len(parts[0][1])
    assert len(report.splits) == splits
    for split, (chosen, kept) in zip(report.splits, parts, strict=True):
        assert not set(chosen) & set(kept)
        on_dev, on_test = (brute_force(left, right, gold, rows) for rows in (chosen, kept))
        assert split.layers == max(on_dev, key=on_dev.get)
        assert split.dev == pytest.approx(max(on_dev.values()), abs=1e-9)
        assert split.test == pytest.approx(on_test[split.layers], abs=1e-9)
        assert split.last_dev == pytest.approx(on_dev[2,], abs=1e-9)
        assert split.last_test == pytest.approx(on_test[2,], abs=1e-9)
        by_dev.append(on_dev)
    mean = {chosen: np.mean([scores[chosen] for scores in by_dev]) for chosen in by_dev[0]}
    assert {found.layers: found.score for found in search.table_} == pytest.approx(mean, abs=1e-9)
    assert search.best_.layers == max(mean, key=mean.get)
    for name, attribute in (("dev", search.best_.dev), ("test", search.best_.test)):
        assert report.mean(name) == pytest.approx(attribute) == np.mean([getattr(one, name) for one in report.splits])
    assert search.last_.layers == (2,)
    assert search.last_.test == pytest.approx(report.mean("last_test"))
    gains = [split.test - split.last_test for split in report.splits]
    assert report.gain.mean == pytest.approx(np.mean(gains), abs=1e-9)


def test_one_half_chooses_and_the_other_reports_unless_told_otherwise():
    left, right, gold = graded_pairs(121, 3)
    search = LayerSearch(resamples=50, seed=2).fit(left, right, gold)
    chosen, kept = halves(121, 2)
    on_dev, on_test = (brute_force(left, right, gold, rows) for rows in (chosen, kept))
    assert search.best_.layers == max(on_dev, key=on_dev.get)
    assert search.best_.test == pytest.approx(on_test[search.best_.layers], abs=1e-9)
    assert [len(search.report_.splits), search.report_.dev_pairs, search.report_.test_pairs] == [1, 60, 61]


@pytest.mark.parametrize("name", ["report_", "verdict_", "parts_"])
def test_where_all_pairs_choose_none_report(name):
    search = LayerSearch(dev=None).fit(*graded_pairs(60, 3))
    assert search.best_.test is None
    with pytest.raises(InputError, match="All pairs chose, none are left to report: give dev"):
        getattr(search, name)


def test_a_report_becomes_json_and_knows_its_spread():
    search = LayerSearch(dev=60, splits=3, resamples=50).fit(*graded_pairs(120, 3))
    told = json.loads(json.dumps(search.report_.as_dict()))
    assert told["dev_pairs"] == told["test_pairs"] == 60
    assert len(told["splits"]) == 3
    assert told["gain"].keys() == {"mean", "low", "high", "p_value"}
    tests = [split["test"] for split in told["splits"]]
    assert search.report_.sd("test") == pytest.approx(np.std(tests, ddof=1))
    assert np.isnan(LayerSearch(dev=60, resamples=50).fit(*graded_pairs(120, 3)).report_.sd("test"))


def test_the_same_seed_gives_the_same_report():
    data = noise_pairs(100, 4)
    same = [LayerSearch(dev=50, splits=2, seed=1, resamples=100).fit(*data) for _ in range(2)]
    assert same[0].report_ == same[1].report_
    assert same[0].stability_ == same[1].stability_
    other = LayerSearch(dev=50, splits=2, seed=2, resamples=100).fit(*data)
    assert other.report_.splits != same[0].report_.splits
    assert other.report_.gain != same[0].report_.gain


def test_the_seed_draws_the_resamples_too():
    """With fixed parts only the bootstrap differs, so that the gain stays and its interval moves."""
    data, parts = noise_pairs(100, 4), [halves(100, 0)]
    one, other = (LayerSearch(parts=parts, seed=seed, resamples=100).fit(*data).report_ for seed in (1, 2))
    assert one.splits == other.splits
    assert one.gain.mean == other.gain.mean
    assert (one.gain.low, one.gain.high) != (other.gain.low, other.gain.high)


def test_the_best_of_noise_is_no_better_than_noise_on_unseen_pairs():
    tests, devs = [], []
    for seed in range(10):
        search = LayerSearch(dev=60, resamples=10).fit(*noise_pairs(120, 6, seed=seed))
        tests.append(search.best_.test)
        devs.append(search.best_.dev)
    assert np.mean(devs) > 0.15
    assert abs(np.mean(tests)) < 0.1


# Stability and warnings


def test_stability_of_a_planted_layer():
    search = LayerSearch(resamples=100).fit(*planted_layer(400, good=1))
    found = search.stability_
    assert isinstance(found, Mapping)
    assert len(found) == 4
    assert dict(found) == {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0}
    assert found.agreement == 1.0
    assert set(found.choices) == {(1,)}
    assert found.poolings == {"mean": 1.0}
    assert search.best_.layers == (1,)
    assert search.warnings_ == []
    assert search.report_.gain.low > 0.5
    assert search.report_.gain.p_value < 0.05


def test_stability_answers_like_any_mapping():
    found = LayerSearch(dev=None).fit(*planted_layer(good=1)).stability_
    assert 1 in found
    assert list(found) == [0, 1, 2, 3]
    assert found.get(1) == 1.0
    assert 4 not in found
    assert -1 not in found
    assert found.get(99) is None
    with pytest.raises(KeyError, match="99"):
        found[99]


def test_shares_and_agreement_are_those_of_the_choices():
    left, right, gold = noise_pairs(150, 5, seed=3)
    found = LayerSearch(dev=None).fit(left, right, gold).stability_
    sets = [set(chosen) for chosen in found.choices]
    assert len(sets) == 40
    assert [found[layer] for layer in range(5)] == pytest.approx([np.mean([i in s for s in sets]) for i in range(5)])
    halves = zip(sets[::2], sets[1::2], strict=True)
    assert found.agreement == pytest.approx(np.mean([len(a & b) / len(a | b) for a, b in halves]))


@pytest.mark.parametrize("layers", [4, 5])  # 15 sets are scored by counts, 31 are not
def test_halves_choose_their_best_set(layers):
    left, right, gold = graded_pairs(60, layers, seed=2)
    search = LayerSearch(dev=None, seed=4).fit(left, right, gold)
    random, order = np.random.default_rng(4), None
    for number, chosen in enumerate(search.stability_.choices[:6]):
        order = random.permutation(60) if number % 2 == 0 else order
        half = order[:30] if number % 2 == 0 else order[30:]
        scores = brute_force(left, right, gold, half)
        assert scores[chosen] == pytest.approx(max(scores.values()), abs=1e-9)


def test_stability_among_the_best_candidates_only(monkeypatch):
    left, right, gold = planted_layer(layers=6, good=2)
    search = LayerSearch(dev=None).fit(left, right, gold)
    monkeypatch.setattr("layerwise.search.stability._MAX_CANDIDATES", 5)
    few = stability({"mean": problem_of(left, right, gold)}, search.table_)
    assert few[2] == 1.0
    assert few.agreement == 1.0


def test_only_complementary_halves_are_compared():
    """Two positive pairs: a half without one can't choose, and then neither half of the two counts."""
    left, right, _ = noise_pairs(60, 4, seed=1)
    labels = np.zeros(60)
    labels[:2] = 1
    search = LayerSearch(dev=None, metric="cosine_ap").fit(left, right, labels)
    sets = [found.layers for found in search.table_]
    problem = problem_of(left, right, labels, "cosine_ap")
    weights = membership(np.array([mask_of(layers) for layers in sets], dtype=np.uint64), 4)
    random, shared = np.random.default_rng(0), []
    for _ in range(20):
        order = random.permutation(60)
        scores = problem.redrawn(weights, [order[:30], order[30:]])
        if not np.isnan(scores).any():
            one, other = (set(sets[row.argmax()]) for row in scores)
            shared.append(len(one & other) / len(one | other))
    assert 0 < len(shared) < 20
    assert search.stability_.agreement == pytest.approx(np.mean(shared))


def test_noise_is_called_unstable():
    search = LayerSearch(resamples=200).fit(*noise_pairs(300, 7, seed=11))
    assert search.stability_.agreement < 0.5
    assert any("the choice is unstable" in warning for warning in search.warnings_)
    assert not any("pairs choose among" in warning for warning in search.warnings_)


@pytest.mark.parametrize(("pairs", "dev", "told"), [(99, None, "99"), (100, None, ""), (160, 60, "60"), (220, 110, "")])
def test_few_pairs_are_warned_of_at_once(pairs, dev, told, caplog):
    with caplog.at_level(logging.WARNING, logger="layerwise"):
        search = LayerSearch(dev=dev, resamples=50).fit(*noise_pairs(pairs, 3))
    warned = [message for message in caplog.messages if "pairs choose among 7 sets" in message]
    assert bool(warned) == bool(told)
    assert all(message.startswith(f"{told} pairs") for message in warned)
    assert [text for text in search.warnings_ if "pairs choose among" in text] == warned


@pytest.mark.parametrize("pairs", [5, 9])
def test_the_fewest_pairs_that_fit_takes_still_warn(pairs):
    search = LayerSearch(dev=None, resamples=20).fit(*noise_pairs(pairs, 3))
    assert any(f"{pairs} pairs choose among 7 sets" in warning for warning in search.warnings_)


# The table


def test_a_table_is_a_sequence_from_best_to_worst():
    table = table_of({(0,): 0.2, (1,): np.nan, (0, 1): 0.5, (2,): 0.5, (0, 2): -0.3})
    assert len(table) == 5
    assert [found.layers for found in table] == [(2,), (0, 1), (0,), (0, 2), (1,)]
    assert table[0] == table.best == ScoredSet((2,), "mean", 0.5)
    assert table[0].mix == Mean.of(2)
    assert [found.layers for found in table[1:3]] == [(0, 1), (0,)]
    assert np.isnan(table[-1].score)
    assert ScoredSet((0, 1), "mean", 0.5) in table
    assert ScoredSet((0, 1), "mean", 0.4) not in table
    with pytest.raises(IndexError, match="5"):
        table[5]


def test_of_equally_good_sets_fewer_then_lower_layers_win():
    assert table_of({(0, 1): 0.5, (3,): 0.5, (1,): 0.5, (2,): 0.5}).best.layers == (1,)
    assert table_of({(0, 3): 0.5, (1, 2): 0.5, (0, 1, 2): 0.5}).best.layers == (1, 2)
    assert table_of({(0, 1): 0.5 + 1e-14, (3,): 0.5}).best.layers == (3,)
    assert table_of({(0, 1): 0.5 + 1e-9, (3,): 0.5}).best.layers == (0, 1)


def test_the_first_of_a_table_is_its_best_whatever_rounding_did():
    table = table_of({(0, 1): 0.5 + 1e-14, (3,): 0.5, (2,): 0.4})
    assert table[0].layers == table.best.layers


def test_poolings_are_searched_together():
    masks = np.array([1, 2, 3], dtype=np.uint64)
    parts = {"mean": (masks, np.array([0.1, 0.2, 0.3])), "cls": (masks[:2], np.array([0.4, 0.25]))}
    table = ScoreTable(parts)
    assert [(found.pooling, found.layers) for found in table] == [
        ("cls", (0,)),
        ("mean", (0, 1)),
        ("cls", (1,)),
        ("mean", (1,)),
        ("mean", (0,)),
    ]
    assert table.score_of((1,)) == 0.2
    assert table.score_of([1], "cls") == 0.25
    assert table.best.pooling == "cls"
    assert table.best.mix.pooling == "cls"


def test_scores_are_looked_up():
    table = table_of({(0,): 0.2, (0, 2): 0.5})
    assert table.score_of((2, 0)) == table.score_of([0, 2], "mean") == 0.5
    with pytest.raises(InputError, match="Layers 0,1 are not in the space that was searched"):
        table.score_of((0, 1))
    with pytest.raises(InputError, match="'cls' was not searched; these were: mean"):
        table.score_of((0,), "cls")


def test_a_table_without_any_score_has_no_best():
    with pytest.raises(InputError, match="No set has a score"):
        table_of({(0,): np.nan, (1,): np.nan}).best  # noqa: B018


@given(st.lists(st.integers(0, 4), min_size=31, max_size=31), st.sets(st.integers(0, 30), max_size=10))
@settings(max_examples=100, deadline=None)
def test_the_front_holds_what_no_cheaper_set_reaches(scores, unknown):
    sets = [layers_of(mask) for mask in range(1, 32)]
    known = {chosen: score / 4 for place, (chosen, score) in enumerate(zip(sets, scores, strict=True))}
    for place in unknown:
        known[sets[place]] = np.nan
    front = table_of(known).front()
    naive = []
    for highest in range(5):
        here = [chosen for chosen in sets if chosen[-1] == highest and not np.isnan(known[chosen])]
        best = min(here, key=lambda chosen: (-known[chosen], len(chosen), chosen[::-1]), default=None)
        if best and all(known[best] > known[cheaper] for cheaper in naive):
            naive.append(best)
    assert [found.layers for found in front] == naive
    assert [found.score for found in front] == sorted({found.score for found in front})


def read_back(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t"))


@pytest.mark.parametrize("name", ["all.csv", "all.tsv", "all.jsonl", "all.parquet", "ALL.CSV"])
def test_a_table_is_written_and_read_back(name, tmp_path):
    left, right, gold = noise_pairs(30, 3)
    poolings = {"mean": left, "cls": left + right}, {"mean": right, "cls": right}
    table = LayerSearch(dev=None).fit(*poolings, gold).table_
    table.write(tmp_path / name)
    rows = read_back((tmp_path / name).rename(tmp_path / name.lower()))
    assert [tuple(map(int, row["layers"].split(","))) for row in rows] == [found.layers for found in table]
    assert [row["pooling"] for row in rows] == [found.pooling for found in table]
    assert [float(row["score"]) for row in rows] == [found.score for found in table]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name.lower()]  # no part is left behind


def test_a_written_set_without_a_score_is_json(tmp_path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    table_of({(0,): 0.5, (1,): np.nan}).write(tmp_path / "table.jsonl")
    rows = [json.loads(line, parse_constant=refuse) for line in (tmp_path / "table.jsonl").read_text().splitlines()]
    assert rows[1]["layers"] == "1"
    assert rows[1]["score"] is None


@pytest.mark.parametrize("name", ["table", "table.txt", "table.json", "table.csv.gz"])
def test_a_table_of_no_known_format_is_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"a table is written as .csv, .tsv, .jsonl, .parquet"):
        table_of({(0,): 0.5}).write(tmp_path / name)
    assert not list(tmp_path.glob("table*"))


def test_a_tables_missing_folder_is_created_but_no_folder_below_a_file(tmp_path):
    table_of({(0,): 0.5}).write(tmp_path / "missing" / "table.csv")
    with pytest.raises(InputError, match=r"table\.csv is a file, not a folder; give another path"):
        table_of({(0,): 0.5}).write(tmp_path / "missing" / "table.csv" / "table.csv")


def test_a_table_over_a_folder_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(InputError, match=r"table\.csv: is a folder; give the name of a file"):
        table_of({(0,): 0.5}).write(tmp_path / "table.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


# LayerSearch


def test_by_default_every_set_is_searched():
    left, right, gold = graded_pairs(110, 6, seed=9)
    search = LayerSearch(dev=None).fit(left, right, gold)
    expected = brute_force(left, right, gold)
    assert {found.layers: found.score for found in search.table_} == pytest.approx(expected, abs=1e-9)
    assert len(search.table_) == 63
    assert search.best_.layers == search.table_[0].layers == max(expected, key=expected.get)
    assert search.best_.dev == pytest.approx(max(expected.values()), abs=1e-12)
    assert search.best_.pooling == "mean"
    assert search.best_.mix == Mean.of(*search.best_.layers)
    assert search.last_.layers == (5,)
    assert search.last_.dev == pytest.approx(expected[5,], abs=1e-12)
    assert search.front_[-1].layers == search.best_.layers
    assert [found.layers[-1] for found in search.front_] == sorted(found.layers[-1] for found in search.front_)


@pytest.mark.parametrize("space", ["up to 2", Space(largest=2), "up-to-2"])
def test_a_space_is_given_as_a_value_or_a_text(space):
    left, right, gold = noise_pairs(40, 4)
    assert len(LayerSearch(dev=None, space=space).fit(left, right, gold).table_) == 10


def test_a_single_layer():
    left, right, gold = graded_pairs(110, 1)
    search = LayerSearch(resamples=20).fit(left, right, gold)
    assert search.best_.layers == search.last_.layers == (0,)
    assert len(search.table_) == 1
    assert search.report_.gain.p_value == 1
    assert search.stability_[0] == 1.0


def test_poolings_are_compared_by_their_best_sets():
    left, right, gold = graded_pairs(110, 3, seed=1)
    good_left, good_right, _ = planted_layer(110, 3, good=2)
    order = np.argsort(np.argsort(gold, kind="stable"))
    poolings = {"mean": left, "cls": good_left[order]}, {"mean": right, "cls": good_right[order]}
    search = LayerSearch(dev=None, resamples=50).fit(*poolings, gold)
    assert len(search.table_) == 14
    assert search.table_.poolings == ("mean", "cls")
    assert search.best_.pooling == "cls"
    assert search.best_.layers == (2,)
    assert search.best_.mix.pooling == "cls"
    assert search.last_.pooling == "mean"  # the baseline is the usual one
    assert search.stability_.poolings == {"mean": 0.0, "cls": 1.0}
    assert np.array_equal(search.transform(poolings[0]), poolings[0]["cls"][:, 2])
    assert search.score(*poolings, gold) == pytest.approx(search.best_.dev, abs=1e-12)
    alone = brute_force(left, right, gold)
    assert search.table_.score_of((0, 1)) == pytest.approx(alone[0, 1], abs=1e-9)


def test_poolings_in_another_order_are_the_same_poolings():
    left, right, gold = noise_pairs(40, 3)
    expected = LayerSearch(dev=None).fit({"mean": left, "cls": right}, {"mean": right, "cls": left + right}, gold)
    found = LayerSearch(dev=None).fit({"mean": left, "cls": right}, {"cls": left + right, "mean": right}, gold)
    assert found.best_ == expected.best_


def test_score_and_transform_on_other_pairs():
    left, right, gold = graded_pairs(160, 4, seed=6)
    search = LayerSearch(dev=None).fit(left[:110], right[:110], gold[:110])
    chosen = list(search.best_.layers)
    mixed = [search.transform(side[110:]) for side in (left, right)]
    assert np.allclose(mixed[0], left[110:, chosen].mean(1))
    expected = spearmanr(cosine(*mixed), gold[110:]).statistic
    assert search.score(left[110:], right[110:], gold[110:]) == pytest.approx(expected, abs=1e-12)
    tensor = search.transform(torch.from_numpy(left))
    assert isinstance(tensor, torch.Tensor)
    assert np.allclose(tensor.numpy(), search.transform(left))


def test_scoring_views_without_the_chosen_pooling_is_refused():
    left, right, gold = planted_layer(good=3)
    search = LayerSearch(dev=None).fit({"cls": left}, {"cls": right}, gold)
    with pytest.raises(LayerwiseError, match="cls"):
        search.score(left, right, gold)


def test_scoring_views_without_the_chosen_layers_is_refused():
    left, right, gold = planted_layer(good=3)
    search = LayerSearch(dev=None).fit(left, right, gold)
    with pytest.raises(LayerwiseError, match="3"):
        search.score(left[:, :3], right[:, :3], gold)


def test_a_users_function_chooses():
    left, right, gold = graded_pairs(110, 3)
    called = LayerSearch(metric=lambda similarities, grades: spearmanr(similarities, grades).statistic, resamples=20)
    called.fit(left, right, gold)
    named = LayerSearch(resamples=20).fit(left, right, gold)
    assert called.best_.layers == named.best_.layers
    assert called.best_.dev == pytest.approx(named.best_.dev, abs=1e-6)
    assert called.report_.gain.low <= called.report_.gain.mean <= called.report_.gain.high


@pytest.mark.parametrize("metric", ["cosine_ap", "cosine_accuracy"])
def test_labelled_pairs(metric):
    left, right, gold = graded_pairs(110, 3)
    labels = (gold > 2.5).astype(int)
    search = LayerSearch(dev=None, metric=metric, resamples=20).fit(left, right, labels)
    chosen = list(search.best_.layers)
    similarities = cosine(left[:, chosen].mean(1), right[:, chosen].mean(1))
    if metric == "cosine_ap":
        expected = average_precision_score(labels, similarities)
    else:
        expected = max(((similarities >= limit) == labels).mean() for limit in [*similarities, np.inf])
    assert search.best_.dev == pytest.approx(expected, abs=1e-12)
    assert search.best_.dev == pytest.approx(max(found.score for found in search.table_), abs=1e-12)
    assert LayerSearch(dev=None, metric=metric).fit(left, right, labels.astype(bool)).best_ == search.best_


def test_rare_labels_that_a_split_misses_are_explained_by_the_labels():
    left, right, _ = noise_pairs(120, 3)
    labels = np.zeros(120)
    labels[0] = 1
    with pytest.raises(InputError, match=r"(?i)label|score 0|constant|positive"):
        LayerSearch(metric="cosine_ap", dev=20, splits=5).fit(left, right, labels)


def test_a_head_is_searched_behind_every_set():
    left, right, gold = graded_pairs(110, 3, width=8)
    torch.manual_seed(0)
    head = Head(torch.randn(4, 8) / 3, torch.randn(4))
    search = LayerSearch(dev=None, head=head, resamples=20).fit(left, right, gold)
    expected = {}
    for found in search.table_:
        with torch.inference_mode():
            mixed = [head.double()(torch.from_numpy(side[:, list(found.layers)].mean(1))) for side in (left, right)]
        expected[found.layers] = spearmanr(cosine(*(side.numpy() for side in mixed)), gold).statistic
    assert {found.layers: found.score for found in search.table_} == pytest.approx(expected, abs=1e-9)
    assert search.best_.layers == max(expected, key=expected.get)


BAD = {
    "too few pairs": (
        lambda a, b, g: (a[:4], b[:4], g[:4]),
        {},
        "4 pairs are too few to choose layers by; give at least 10",
    ),
    "constant": (lambda a, b, g: (a, b, g * 0 + 3), {}, "All 40 scores are 3: constant scores say nothing"),
    "NaN": (lambda a, b, g: (a, b, [*g[:-1], np.nan]), {}, "Score 39 is nan, not a finite number"),
    "infinite": (lambda a, b, g: (a, b, [np.inf, *g[1:]]), {}, "Score 0 is inf, not a finite number"),
    "texts": (lambda a, b, g: (a, b, ["good"] * 40), {}, "The scores are not numbers"),
    "a table": (lambda a, b, g: (a, b, np.stack([g, g])), {}, r"Scores have the shape \(2, 40\)"),
    "fewer scores": (lambda a, b, g: (a, b, g[:-1]), {}, "40 and 40 sentences for 39 scores: the lengths differ"),
    "fewer sentences": (lambda a, b, g: (a, b[:-2], g), {}, "40 and 38 sentences for 40 scores"),
    "layers": (lambda a, b, g: (a, b[:, :2], g), {}, r"two sides' views differ: \(40, 3, 6\) and \(40, 2, 6\)"),
    "two axes": (lambda a, b, g: (a[:, 0], b[:, 0], g), {}, r"shape \(pairs, layers, width\), not \(40, 6\)"),
    "no layers": (lambda a, b, g: (a[:, :0], b[:, :0], g), {}, r"shape \(pairs, layers, width\), not \(40, 0, 6\)"),
    "poolings": (lambda a, b, g: ({"mean": a}, {"cls": b}, g), {}, "poolings differ: mean and cls"),
    "one mapping": (lambda a, b, g: ({"cls": a}, b, g), {}, "poolings differ: cls and mean"),
    "no poolings": (lambda a, b, g: ({}, {}, g), {}, "No views: give an array, or a mapping"),
    "no such pooling": (lambda a, b, g: ({"men": a}, {"men": b}, g), {}, "Unknown .* 'men'. Did you mean 'mean'"),
    "metric": (lambda a, b, g: (a, b, g), {"metric": "spearmann"}, "Unknown metric .* Did you mean 'spearman'"),
    "no metric": (lambda a, b, g: (a, b, g), {"metric": 7}, "A metric is a name .* or a function, not 7"),
    "method": (lambda a, b, g: (a, b, g), {"method": "magic"}, "Unknown method 'magic'. Known: auto, exhaustive, beam"),
    "grades": (lambda a, b, g: (a, b, g + 2), {"metric": "cosine_accuracy"}, "cosine_accuracy needs labels 0 and 1"),
    "space": (lambda a, b, g: (a, b, g), {"space": "some"}, "'some' is no space of layers"),
    "empty space": (lambda a, b, g: (a, b, g), {"space": "at least 4"}, "No set of layers 0 to 2 fits the space"),
    "equal": (lambda a, b, g: (a, a, g), {}, "No set has a score: all pairs are equally similar"),
    "dev": (lambda a, b, g: (a, b, g), {"dev": 39}, "40 pairs, 39 of which choose, are too few"),
    "width": (
        lambda a, b, g: (a, b, g),
        {"head": Head(torch.eye(5))},
        "The head takes 5 numbers, but the views have 6",
    ),
}


@pytest.mark.parametrize(("change", "arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_in_one_clear_line(change, arguments, message):
    with pytest.raises(LayerwiseError, match=message) as error:
        LayerSearch(**arguments).fit(*change(*noise_pairs(40, 3)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_views_that_are_no_numbers_name_their_pair(value):
    left, right, gold = noise_pairs(40, 3)
    right[17, 1, 2] = value
    with pytest.raises(InputError, match="The views of pair 17 hold NaN or infinite numbers"):
        LayerSearch(dev=None).fit(left, right, gold)


def test_an_interrupt_stops_cleanly_and_the_next_search_works():
    left, right, gold = noise_pairs(200, 12)
    calls, threads = [], torch.get_num_threads()

    def interrupt(sets):
        calls.append(sets)
        raise KeyboardInterrupt("enough")

    with pytest.raises(KeyboardInterrupt, match="enough"):
        LayerSearch(dev=None, progress=interrupt).fit(left, right, gold)
    assert torch.get_num_threads() == threads
    assert len(calls) <= 2  # the thread that was interrupted, and the one beside it
    assert len(LayerSearch(dev=None).fit(left, right, gold).table_) == 4095


@pytest.mark.parametrize(
    ("options", "gold"),
    [
        ({}, True),
        ({"dev": 0.5}, True),
        ({"dev": 40, "splits": 3, "space": "up to 2"}, True),
        ({"method": "exhaustive", "space": Space(contiguous=True)}, True),
        ({"method": "weights"}, True),
        ({"space": "without 1"}, False),
        ({"metric": "mrr@3", "dev": 0.5, "splits": 2}, True),
    ],
)
def test_progress_is_told_of_as_many_sets_as_were_announced(options, gold):
    left, right, grades = noise_pairs(80, 4)
    grades = None if not gold else np.arange(80) if "metric" in options else grades
    done = []
    search = LayerSearch(**options, progress=done.append)
    announced = search.sets_to_score(4, 2)
    search.fit({"mean": left, "cls": right}, {"mean": right, "cls": left}, grades)
    assert sum(done) == announced


@pytest.mark.parametrize(("method", "layers"), [("beam", 5), ("greedy", 5), ("auto", 30)])
def test_a_beam_can_not_say_how_many_sets_it_will_look_at(method, layers):
    assert LayerSearch(dev=None, method=method).sets_to_score(layers) is None


@pytest.mark.parametrize("options", [{}, {"dev": 60}, {"dev": 0.4, "splits": 3}])
def test_any_mixes_are_scored_on_the_pairs_that_were_kept_apart(options):
    left, right, gold = noise_pairs(120, 4)
    sides = {"mean": left, "cls": right}, {"mean": right, "cls": left}
    search = LayerSearch(**options).fit(*sides, gold)
    mixes = [Mean.of(1), Mean.of(0, 3, pooling="cls"), Mean.weighted({0: 0.25, 2: 0.75})]
    expected = [
        [spearmanr(cosine(*(mix(side[mix.pooling][test]) for side in sides)), gold[test]).statistic]
        for mix in mixes
        for _, test in search.parts_
    ]
    found = search.unseen_scores(mixes)
    assert found == pytest.approx(np.array(expected).reshape(3, -1), abs=1e-9)
    assert search.unseen_scores([]).shape == (0, len(search.parts_))
    with pytest.raises(InputError, match="needs layer 9; the views end at 3"):
        search.unseen_scores([Mean.of(9)])


def test_progress_counts_all_sets():
    done = []
    LayerSearch(dev=None, progress=done.append).fit(*noise_pairs(120, 7))
    assert sum(done) == 127


def test_fitting_again_replaces_what_was_computed_later():
    search = LayerSearch(resamples=50).fit(*planted_layer(good=1))
    assert search.stability_[1] == 1.0
    assert search.verdict_.use.layers == (1,)
    assert search.report_.splits[0].layers == (1,)
    search.fit(*planted_layer(good=2, seed=1))
    fresh = LayerSearch(resamples=50).fit(*planted_layer(good=2, seed=1))
    assert search.best_ == fresh.best_
    assert search.verdict_ == fresh.verdict_
    assert search.report_ == fresh.report_
    assert search.stability_ == fresh.stability_
    assert search.stability_[2] == 1.0


def test_an_interrupted_second_fit_leaves_no_mixture_of_both():
    search = LayerSearch(dev=None, resamples=20).fit(*planted_layer(good=1))

    def interrupt(_sets):
        raise KeyboardInterrupt("enough")

    search.progress = interrupt
    with pytest.raises(KeyboardInterrupt, match="enough"):
        search.fit(*planted_layer(good=2))
    search.progress = None
    assert not hasattr(search, "best_") or search.report_.splits[0].layers == search.best_.layers


def test_fitting_again_with_other_settings():
    left, right, gold = graded_pairs(120, 3)
    search = LayerSearch(resamples=50, dev=60).fit(left, right, gold)
    assert len(search.report_.splits) == 1
    search.dev, search.splits = 0.5, 3
    assert len(search.fit(left, right, gold).report_.splits) == 3
    search.dev = None
    assert search.fit(left, right, gold).best_.test is None


def test_views_are_left_as_they_were():
    left, right, gold = noise_pairs(40, 3)
    before = left.copy(), right.copy(), gold.copy()
    LayerSearch(dev=20, resamples=20).fit(left, right, gold)
    assert all(np.array_equal(*pair) for pair in zip((left, right, gold), before, strict=True))


def test_from_sentences_to_a_saved_model(tiny_bert, sentences, tmp_path):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    pairs = list(combinations(sentences, 2))
    left, right = (encoder.encode_layers([pair[side] for pair in pairs], ("mean", "max")) for side in (0, 1))
    gold = np.random.default_rng(0).integers(0, 6, size=len(pairs))
    search = LayerSearch(dev=None).fit(left, right, gold)
    model = LayerModel(encoder, search.best_.mix)
    embeddings = [model.encode([pair[side] for pair in pairs]) for side in (0, 1)]
    expected = spearmanr(cosine(*(side.astype(np.float64) for side in embeddings)), gold).statistic
    assert search.best_.dev == pytest.approx(expected, abs=1e-3)
    assert np.abs(search.transform(left) - embeddings[0]).max() < 1e-5


def test_an_unknown_layer_of_a_space_is_named():
    with pytest.raises(MixError, match="There is no layer 9: this encoder has layers 0 to 2"):
        LayerSearch(dev=None, space="without 9").fit(*noise_pairs(40, 3))
