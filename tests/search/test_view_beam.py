"""Beam search over views: exact scores, the best sets found, constant views neither winning nor crashing."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from layerwise.errors import InputError
from layerwise.search.metrics import as_metric
from layerwise.search.pair_views import PairViews
from layerwise.search.view_beam import bagged_views, beam_search_views


def views_of(pairs=60, views=7, width=9, seed=0):
    random = np.random.default_rng(seed)
    gold = random.random(pairs)
    left = random.normal(size=(pairs, views, width))
    noise = random.normal(size=(pairs, views, width)) * (1.2 - gold)[:, None, None] * random.random((views, 1)) * 3
    return torch.from_numpy(left).float(), torch.from_numpy(left + noise).float(), gold


def cosine(left, right):
    return (left * right).sum(-1) / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1)


def brute_force(left, right, gold, most):
    scores = {}
    for size in range(1, most + 1):
        for views in combinations(range(left.shape[1]), size):
            sides = (side.double().numpy()[:, list(views)].mean(1) for side in (left, right))
            scores[views] = spearmanr(cosine(*sides), gold).statistic
    return scores


def test_a_wide_beam_scores_every_set_as_scipy_does():
    left, right, gold = views_of()
    results = beam_search_views(PairViews(left, right), as_metric("spearman")(gold), max_views=4, width=1000)
    expected = brute_force(left, right, gold, 4)
    assert results == pytest.approx(expected, abs=1e-3)
    assert max(results, key=results.get) == max(expected, key=expected.get)


def test_a_narrow_beam_finds_planted_views():
    random = np.random.default_rng(1)
    gold = random.uniform(-0.9, 0.9, 200)
    left, right = torch.from_numpy(random.normal(size=(2, 200, 120, 16))).float()
    signal, angle = random.normal(size=(200, 16)), np.arccos(gold)
    noise = torch.from_numpy(random.normal(size=(200, 16))).float() * 2
    unit = torch.from_numpy(signal / np.linalg.norm(signal, axis=1, keepdims=True)).float()
    side = torch.from_numpy(random.normal(size=(200, 16))).float()
    side = torch.nn.functional.normalize(side - (side * unit).sum(1, keepdim=True) * unit)
    turned = (
        torch.from_numpy(np.cos(angle)).float()[:, None] * unit
        + torch.from_numpy(np.sin(angle)).float()[:, None] * side
    )
    left[:, 7], right[:, 7] = unit * 5 + noise, turned * 5 + noise.flip(0)
    left[:, 80], right[:, 80] = unit * 5 - noise, turned * 5 - noise.flip(0)
    results = beam_search_views(PairViews(left, right), as_metric("spearman")(gold), max_views=3, width=4)
    assert max(results, key=results.get) == (7, 80)
    assert results[7, 80] == pytest.approx(1, abs=0.01)


def test_a_constant_view_neither_wins_nor_crashes():
    left, right, gold = views_of(views=4)
    left[:, 2], right[:, 2] = 1.0, 1.0
    results = beam_search_views(PairViews(left, right), as_metric("spearman")(gold), max_views=2, width=10)
    assert (2,) not in results
    assert max(results, key=results.get) != (2,)
    assert np.isfinite(results[1, 2])


def test_negative_views_come_second():
    left, right, gold = views_of(views=3)
    both = PairViews(left, right, np.array([0, 1, 2, ~0, ~1, ~2]))
    assert len(both) == 6
    metric = as_metric("spearman")(gold)
    results = beam_search_views(both, metric, max_views=2, width=100)
    with np.errstate(invalid="ignore"):
        expected = brute_force(torch.cat([left, -left], 1), torch.cat([right, -right], 1), gold, 2)
    assert {views for views in results if len(views) == 1} == {(0,), (1,), (2,)}
    assert all(views[0] < 3 for views in results)
    nothing = {(0, 3), (1, 4), (2, 5)}  # a view less itself: its score would be that of rounding
    assert not nothing & results.keys()
    assert all(results[views] == pytest.approx(expected[views], abs=1e-3) for views in results)
    of_rows = {"n_resamples": 9, "max_views": 1, "allowed": [True] * 6, "seed": 0}
    counts = bagged_views(both, lambda rows: (rows, as_metric("spearman")(gold[rows])), **of_rows)
    assert set(counts) <= {0, 1, 2}


def test_no_set_cancels_itself():
    left, right, gold = views_of(views=3)
    both = PairViews(left, right, np.array([0, 1, 2, ~0, ~1, ~2]))
    results = beam_search_views(both, as_metric("spearman")(gold), max_views=4, width=1000)
    assert not {(0, 3), (1, 4), (2, 5), (0, 1, 3, 4), (0, 2, 3, 5), (1, 2, 4, 5)} & results.keys()
    assert results[0, 1, 3] == pytest.approx(
        results[1,], abs=1e-6
    )  # what is taken away again is as if it were not there
    assert both.cancelling([0, 1, 3]) == [4]
    assert both.cancelling([0, 1]) == PairViews(left, right).cancelling([0]) == []


def test_some_of_views_and_negatives_are_picked():
    left, right, _ = views_of(views=3)
    both = PairViews(left, right, np.array([0, 1, 2, ~0, ~1, ~2]))
    copies = PairViews(torch.cat([left, -left], 1), torch.cat([right, -right], 1))
    picks = [4, 1, 5, 0], slice(2, 5), np.array([3])
    for views in (both, *map(both.pick, picks)):
        assert views.left.shape[1] <= 3
    for one, other in ((both, copies), *((both.pick(some), copies.pick(some)) for some in picks)):
        sets = [(0,), (0, len(one) - 1)]
        torch.testing.assert_close(one.self_products, other.self_products)
        torch.testing.assert_close(one.cross_products(sets), other.cross_products(sets))
        torch.testing.assert_close(one.cosines([0], [2.0]), other.cosines([0], [2.0]))
        torch.testing.assert_close(one.cosines(sets[1], [1.0, 3.0]), other.cosines(sets[1], [1.0, 3.0]))


def test_only_sets_that_fit_are_taken():
    left, right, gold = views_of()
    metric = as_metric("spearman")(gold)
    results = beam_search_views(
        PairViews(left, right), metric, max_views=3, width=9, allowed=lambda _: [n in (0, 2, 4) for n in range(7)]
    )
    assert {view for views in results for view in views} == {0, 2, 4}


def test_cosines_of_a_set():
    left, right, _ = views_of()
    results = PairViews(left, right).cosines((1, 4, 5))
    sides = (side[:, [1, 4, 5]].double().numpy().mean(1) for side in (left, right))
    assert results.numpy() == pytest.approx(cosine(*sides), abs=1e-5)


def test_products_of_a_set_grow_by_what_a_view_adds():
    views = PairViews(*views_of()[:2])
    left, right = views.left[:, [0, 4, 5]].sum(1), views.right[:, [0, 4, 5]].sum(1)
    products = torch.stack([(left * right).sum(-1), left.square().sum(-1), right.square().sum(-1)])
    both = views.self_products[..., 0] + views.self_products[..., 4] + views.cross_products([(0,)])[0, ..., 4]
    grown = both + views.self_products[..., 5] + views.cross_products([(0, 4)])[0, ..., 5]
    torch.testing.assert_close(grown, products, rtol=1e-4, atol=1e-4)


def test_some_of_the_views():
    views = PairViews(*views_of()[:2])
    torch.testing.assert_close(views.pick([2, 5]).self_products, views.self_products[..., [2, 5]])


def test_sides_that_differ_are_refused():
    left, right, _ = views_of()
    with pytest.raises(InputError, match="two sides' views differ"):
        PairViews(left, right[:, :3])


def test_bags_count_what_resamples_choose():
    left, right, gold = views_of(views=6)
    both, metric = PairViews(left, right), as_metric("spearman")
    allowed = [view != 3 for view in range(6)]
    counts = bagged_views(
        both, lambda rows: metric.resampled(gold, rows), n_resamples=7, max_views=5, allowed=allowed, seed=2
    )
    random, expected = np.random.default_rng(2), {}
    for _ in range(7):
        rows = random.integers(60, size=60)
        results = beam_search_views(
            PairViews(left[rows], right[rows]), metric(gold[rows]), max_views=5, width=1, allowed=lambda _: allowed
        )
        for view in max(results, key=results.get):
            expected[view] = expected.get(view, 0) + 1
    assert counts == {view: count for view, count in expected.items() if count > 1}
    assert 3 not in counts
    weighted = both.cosines(list(counts), [float(count) for count in counts.values()])
    weights = np.array(list(counts.values()), dtype=float)[:, None]
    sides = ((side[:, list(counts)].double().numpy() * weights).sum(1) for side in (left, right))
    assert weighted.numpy() == pytest.approx(cosine(*sides), abs=1e-5)
