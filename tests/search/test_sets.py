"""Sets of layers: beams, continuous weights, splits, resamples and halves, against SciPy on one set at a time."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from layerwise import Mean, Search, parse_mix
from layerwise.errors import InputError
from layerwise.evidence import draw_halves, draw_splits, halves_agreement, paired_gain
from layerwise.metrics import redraw_pearson, redraw_spearman
from layerwise.progress import showing
from layerwise.search import Space, layers_of, sets
from layerwise.search.beam import beam_search
from layerwise.search.metrics import counts_of
from layerwise.search.sets import weights_of
from layerwise.search.spaces import membership
from layerwise.search.weights import search_weights
from support.search_views import (
    brute_force,
    cosine,
    graded_pairs,
    noise_pairs,
    planted_layer,
    planted_mix,
    problem_of,
    score_of,
)
from support.slow_cases import one_in


def select(left, right, gold, **options):
    return Search(**{"n_resamples": 50, **options}).fit_views(left, right, gold).selection_


def as_scores(masks, scores):
    return {layers_of(int(mask)): float(score) for mask, score in zip(masks, scores, strict=True)}


def in_table(selection):
    return {scored.layers: scored.dev for scored in selection.table}


# Beams


@pytest.mark.parametrize("width", [1, 3, 32])
def test_a_beam_scores_a_part_of_all_sets_and_stops_at_a_local_best(width):
    problem = problem_of(*noise_pairs(60, 7))
    everything = as_scores(*problem.scan(Space()))
    visited = as_scores(*beam_search(problem, Space(), width=width))
    assert len(visited) < len(everything)
    assert visited == pytest.approx({chosen: everything[chosen] for chosen in visited}, abs=1e-12)
    best = set(max(visited, key=visited.get))
    flips = [best ^ {layer} for layer in range(7)]
    swaps = [best ^ {one, other} for one, other in combinations(range(7), 2)]
    assert all(everything[tuple(sorted(near))] <= max(visited.values()) for near in flips + swaps if near)


def test_a_beam_finds_the_planted_set_among_more_than_can_be_searched_whole():
    selection = select(*planted_mix({7: 0.5, 23: 0.5}, layers=30), dev="all")  # 2^30 sets: a beam by itself
    assert len(selection.table) < 20_000
    assert selection.chosen.layers == (7, 23)
    assert selection.chosen.dev == pytest.approx(1, abs=1e-9)


def test_spaces_above_the_limit_are_searched_by_a_beam(monkeypatch):
    pairs = noise_pairs(60, 8)
    monkeypatch.setattr(sets, "EXHAUSTIVE", 254)
    assert len(select(*pairs, dev="all").table) < 255
    assert len(select(*pairs, dev="all", method="exhaustive").table) == 255
    monkeypatch.setattr(sets, "EXHAUSTIVE", 255)
    assert len(select(*pairs, dev="all").table) == 255


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_beams_stay_in_their_space(method):
    pairs = noise_pairs(60, 8, seed=5)
    spaces = "up to 2|exactly 3|at least 5|with 2,5|with 0; up to 3; without 7|without 0-3|0,2,4; exactly 2|with 0-7"
    for space in (*spaces.split("|"), "contiguous", "contiguous; exactly 4", "contiguous; with 1,4"):
        allowed = {layers_of(int(mask)) for masks in Space.parse(space).masks(8, 99) for mask in masks}
        selection = select(*pairs, dev="all", method=method, space=space)
        assert in_table(selection).keys() <= allowed, space
        assert selection.chosen.layers in allowed, space


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_beams_of_several_splits_are_scored_on_all_of_them(method):
    pairs = noise_pairs(120, 12, seed=1)
    selection = select(*pairs, method=method, space="exactly 5", dev=60, splits=5)
    assert len(selection.chosen.layers) == 5
    mean = np.mean([score_of(*pairs, selection.table[0].layers, dev) for dev, _ in selection.splits])
    assert selection.table[0].dev == pytest.approx(mean, abs=1e-9)


def test_a_beam_through_layers_without_a_score():
    left, right, gold = planted_layer(layers=5, good=3)
    right[:, :2] = left[:, :2]  # NaN
    assert select(left, right, gold, dev="all", method="greedy").chosen.layers == (3,)


# Continuous weights


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 40)


@pytest.mark.parametrize("metric", ["spearman", "pearson", "cosine_ap", "cosine_accuracy"])
@pytest.mark.usefixtures("few_steps")
def test_weights_are_never_worse_than_their_starts(metric):
    left, right, gold = graded_pairs(60, 4)
    problem = problem_of(left, right, gold > 3 if metric in ("cosine_ap", "cosine_accuracy") else gold, metric)
    starts = np.concatenate([np.eye(4), np.ones((1, 4)), [[0.5, 0.2, 0.2, 0.1]]])
    result = search_weights(problem, starts)
    assert result.score >= problem.scores(starts).max() - 1e-12
    assert result.score == pytest.approx(problem.scores(result.weights[None])[0], abs=1e-12)
    assert result.weights.sum() == pytest.approx(1, abs=1e-12)
    assert (result.weights >= 0).all()


def test_planted_weights_are_found():
    pairs = planted_mix({1: 0.25, 4: 0.75}, pairs=200)
    best_set, weighted = (select(*pairs, dev="all", method=method).chosen for method in ("auto", "weights"))
    shares = dict(zip(weighted.mix.layers, weighted.mix.shares, strict=True))
    assert sum(shares.values()) == pytest.approx(1)
    assert (shares[1], shares[4]) == pytest.approx((0.25, 0.75), abs=0.03)
    assert weighted.dev > 0.98 > best_set.dev + 0.02
    sides = (weighted.mix(side) for side in pairs[:2])
    assert weighted.dev == pytest.approx(spearmanr(cosine(*sides), pairs[2]).statistic, abs=1e-9)


@pytest.mark.usefixtures("few_steps")
def test_weights_stay_in_their_space_and_are_no_worse_than_its_best_set():
    pairs = graded_pairs(60, 4, seed=3)
    for space in (Space(), Space(highest=1), Space(exclude=(3,)), Space(only=(0, 2))):
        best_set, weighted = (select(*pairs, dev="all", method=method, space=space) for method in ("auto", "weights"))
        assert set(weighted.chosen.layers) <= set(space.bits(4)[1])
        assert weighted.chosen.dev >= best_set.chosen.dev - 1e-12


@pytest.mark.usefixtures("few_steps")
def test_weights_of_one_split_report_and_those_of_several_are_averaged_within_a_pooling():
    left, right, gold = noise_pairs(120, 3, seed=2)
    other_left, other_right, _ = noise_pairs(120, 3, seed=3)
    sides = {"mean": left, "cls": other_left}, {"mean": right, "cls": other_right}
    one = select(*sides, gold, method="weights", dev=60)
    assert one.chosen.mix == one.choices[0].best.mix
    test, used = one.splits[0].test, one.chosen.mix
    expected = spearmanr(cosine(*(used(side[used.pooling][test]) for side in sides)), gold[test]).statistic
    assert one.chosen.test == pytest.approx(expected, abs=1e-9)
    several = select(*sides, gold, method="weights", dev=60, splits=4)
    mixes = [choice.best.mix for choice in several.choices]
    assert {mix.pooling for mix in mixes} == {"mean", "cls"}  # or there is nothing to see
    chosen = several.chosen.mix
    alike = [weights_of(mix, 3) for mix in mixes if mix.pooling == chosen.pooling]
    assert weights_of(chosen, 3) == pytest.approx(np.mean(alike, axis=0), abs=1e-9)
    assert weights_of(parse_mix(str(chosen)), 3) == pytest.approx(weights_of(chosen, 3), abs=1e-3)


# Resamples


@given(st.data())
def test_redrawn_correlations_are_scipys_on_the_drawn_pairs(data):
    pairs = data.draw(st.integers(5, 12))
    similarities = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=pairs, max_size=pairs))) / 4
    gold = np.array(data.draw(st.lists(st.integers(0, 5), min_size=pairs, max_size=pairs)), dtype=float)
    draw = st.lists(st.integers(0, pairs - 1), min_size=2, max_size=pairs)
    draws = [np.array(rows) for rows in data.draw(st.lists(draw, min_size=1, max_size=4))]
    counts = counts_of([*draws, np.array([], dtype=np.intp)], pairs)
    for redraw, scipys in ((redraw_spearman, spearmanr), (redraw_pearson, pearsonr)):
        *redrawn, of_none = redraw(similarities, gold, counts)
        assert np.isnan(of_none)
        for rows, score in zip(draws, redrawn, strict=True):
            flat = np.ptp(similarities[rows]) == 0 or np.ptp(gold[rows]) == 0
            expected = np.nan if flat else scipys(similarities[rows], gold[rows]).statistic
            assert score == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("rows", [3, 17])  # by counts, and one after the other
@pytest.mark.parametrize("metric", ["spearman", "pearson", "cosine_ap", "cosine_accuracy"])
def test_redrawn_scores_are_those_of_the_drawn_pairs(metric, rows):
    left, right, gold = graded_pairs(40, 5)
    right[::4] = left[::4]
    gold = (gold > 2.5).astype(float) if metric in ("cosine_ap", "cosine_accuracy") else gold
    random = np.random.default_rng(0)
    draws = [random.integers(40, size=40) for _ in range(5)] + [np.arange(20), np.full(9, 3)]
    weights = membership(np.arange(1, rows + 1, dtype=np.uint64), 5)
    redrawn = problem_of(left, right, gold, metric).redrawn(weights, draws)
    for number, draw in enumerate(draws[:-1]):
        expected = problem_of(left[draw], right[draw], gold[draw], metric).scores(weights)
        assert redrawn[number] == pytest.approx(expected, abs=1e-9), number
    assert np.isnan(redrawn[-1]).all()  # one score only


@pytest.mark.parametrize(("metric", "splits"), one_in(2, [("spearman", 1), ("spearman", 3), ("cosine_ap", 1)]))
def test_the_gain_is_the_paired_bootstrap_of_the_choices_on_unseen_pairs(metric, splits):
    """The jackknife does not hold for a place in a list, so that labels keep their resamples."""
    left, right, gold = graded_pairs(60, 3, seed=1)
    gold = gold if metric == "spearman" else (gold > 2.5).astype(float)
    selection = select(left, right, gold, metric=metric, splits=splits, seed=3)

    def scores_of(choice):
        mixes = [choice.best.mix, choice.last.mix]

        def scores(draws):
            weights = np.concatenate([weights_of(mix, 3) for mix in mixes])
            scored = [problem_of(left[d], right[d], gold[d], metric).scores(weights) for d in draws if np.ptp(gold[d])]
            return np.stack(scored)

        return scores

    functions, is_smooth = [scores_of(choice) for choice in selection.choices], metric == "spearman"
    expected = paired_gain(functions, selection.splits, size=60, seed=3, resamples=50, smooth=is_smooth)
    assert vars(selection.gain) == pytest.approx(vars(expected), abs=1e-9)
    assert selection.gain.mean == pytest.approx(selection.chosen.test - selection.last.test) or splits > 1


# Splits


@pytest.mark.parametrize(("dev", "splits"), [(None, None), (60, 1), (0.25, 3)])
def test_every_split_scores_as_by_hand(dev, splits):
    pairs = graded_pairs(120, 3, seed=7)
    selection = select(*pairs, dev=dev, splits=splits, seed=5)
    parts = draw_splits(120, dev or 0.5, splits or 1, 5)
    assert (selection.n_choosing, selection.n_reporting) == (len(parts[0].dev), len(parts[0].test))
    by_dev = []
    for choice, (chosen, reporting) in zip(selection.choices, parts, strict=True):
        on_dev, on_test = (brute_force(*pairs, rows) for rows in (chosen, reporting))
        best, last = choice.best, choice.last
        assert best.layers == max(on_dev, key=on_dev.get)
        assert (best.dev, best.test) == pytest.approx((on_dev[best.layers], on_test[best.layers]), abs=1e-9)
        assert (last.dev, last.test) == pytest.approx((on_dev[2,], on_test[2,]), abs=1e-9)
        by_dev.append(on_dev)
    mean = {chosen: np.mean([scores[chosen] for scores in by_dev]) for chosen in by_dev[0]}
    assert in_table(selection) == pytest.approx(mean, abs=1e-9)
    assert selection.chosen.layers == max(mean, key=mean.get)
    for name in ("dev", "test"):
        assert getattr(selection.chosen, name) == pytest.approx(
            np.mean([getattr(choice.best, name) for choice in selection.choices])
        )
    gains = [choice.best.test - choice.last.test for choice in selection.choices]
    assert selection.gain.mean == pytest.approx(np.mean(gains), abs=1e-9)


def test_fixed_parts_leave_only_the_resamples_to_the_seed():
    pairs, parts = noise_pairs(100, 4), [(np.arange(50), np.arange(50, 100))]
    one, other = (select(*pairs, parts=parts, seed=seed) for seed in (1, 2))
    assert one.chosen == other.chosen
    assert one.gain.mean == other.gain.mean
    assert one.gain.low != other.gain.low


def test_any_mixes_are_scored_on_the_pairs_that_were_kept_apart():
    left, right, gold = noise_pairs(120, 4)
    sides = {"mean": left, "cls": right}, {"mean": right, "cls": left}
    scorer = select(*sides, gold, dev=0.4, splits=3).scorer
    mixes = [Mean.of(1), Mean.of(0, 3, pooling="cls"), Mean.weighted({0: 0.25, 2: 0.75})]
    expected = [
        [
            spearmanr(cosine(*(mix(side[mix.pooling][test]) for side in sides)), gold[test]).statistic
            for _, test in scorer.splits
        ]
        for mix in mixes
    ]
    assert scorer.unseen_scores(mixes) == pytest.approx(np.array(expected), abs=1e-9)
    with pytest.raises(InputError, match="needs layer 9; the views end at 3"):
        scorer.unseen_scores([Mean.of(9)])
    with pytest.raises(InputError, match="needs max views; these are mean, cls"):
        scorer.unseen_scores([Mean.of(1, pooling="max")])


# Halves


def test_the_stability_of_a_planted_layer():
    selection = select(*planted_layer(400, good=1))
    assert selection.stability.layers == {1: 1.0}
    assert selection.stability.views == {"1 @ mean": 1.0}
    assert selection.stability.poolings == {"mean": 1.0}
    assert selection.stability.agreement == 1.0
    assert selection.warnings == []


@pytest.mark.parametrize("layers", [3, 5])  # 7 sets are scored by counts, 31 are not
def test_halves_choose_their_best_set(layers, monkeypatch):
    pairs = graded_pairs(60, layers, seed=2)
    monkeypatch.setattr(sets, "_HALVES", 4)
    stability = select(*pairs, dev="all", seed=4).stability
    by_half = [brute_force(*pairs, half) for half in draw_halves(60, 4, 4)]
    agreed = halves_agreement([max(scores, key=scores.get) for scores in by_half])
    assert stability.layers == agreed.shares
    assert stability.agreement == agreed.agreement


def test_halves_choose_among_the_best_candidates_only(monkeypatch):
    monkeypatch.setattr(sets, "_MAX_CANDIDATES", 5)
    stability = select(*planted_layer(layers=6, good=2), dev="all").stability
    assert (stability.layers, stability.agreement) == ({2: 1.0}, 1.0)


def test_noise_is_called_unstable_and_is_no_better_on_unseen_pairs():
    selections = [select(*noise_pairs(300, 6, seed=seed), n_resamples=10) for seed in range(8)]
    assert selections[3].stability.agreement < 0.5
    assert any("the choice is unstable" in warning for warning in selections[3].warnings)
    assert np.mean([one.chosen.dev for one in selections]) > 0.08
    assert abs(np.mean([one.chosen.test for one in selections])) < 0.06


# Progress


class Recorder:
    """Keeps what was announced and what was done."""

    def __init__(self, error=None):
        self.announced, self.done, self.error = None, [], error

    def __call__(self, label, total):
        self.announced = total
        return self

    def __enter__(self):
        return self.advance

    def __exit__(self, *_):
        return None

    def advance(self, count):
        self.done.append(count)
        if self.error:
            raise self.error


@pytest.mark.parametrize(
    "options",
    [
        {"dev": "all"},
        {"dev": 40, "splits": 3, "space": "up to 2"},
        {"method": "exhaustive", "space": Space(contiguous=True)},
        {"method": "weights"},
    ],
)
@pytest.mark.usefixtures("few_steps")
def test_as_many_sets_are_counted_as_were_announced(options):
    left, right, gold = noise_pairs(80, 4)
    with showing(recorder := Recorder()):
        select({"mean": left, "cls": right}, {"mean": right, "cls": left}, gold, **options)
    assert sum(recorder.done) == recorder.announced > 0


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_a_beam_cannot_say_how_many_sets_it_will_visit(method):
    with showing(recorder := Recorder()):
        select(*noise_pairs(60, 5), method=method)
    assert recorder.announced is None


def test_an_interrupt_stops_cleanly_and_leaves_no_mixture_of_two_searches():
    pairs, threads = noise_pairs(100, 10), torch.get_num_threads()
    search = Search(dev="all").fit_views(*pairs)
    with showing(recorder := Recorder(KeyboardInterrupt("enough"))), pytest.raises(KeyboardInterrupt, match="enough"):
        search.fit_views(*noise_pairs(100, 10, seed=1))
    assert torch.get_num_threads() == threads
    assert len(recorder.done) <= 2  # the thread that was interrupted, and the one beside it
    assert not hasattr(search, "selection_")
    assert len(search.fit_views(*pairs).selection_.table) == 1023
