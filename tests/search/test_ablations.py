"""The paper's ablations against loops over all sets, with SciPy."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import spearmanr

from layerwise import Search
from layerwise.errors import InputError
from layerwise.search import by_size, by_training_size, fixed_mixes, random_sets, without_each


def scorer_of(left, right, gold, **options):
    return Search(n_resamples=20, **options).fit_views(left, right, gold).selection_.scorer


SETTINGS = {"a split": {"dev": 40}, "splits": {"dev": 0.5, "splits": 3, "seed": 4}, "nested halves": {}}


def made_up(pairs=90, layers=4, width=6, seed=0, poolings=("mean",)):
    """Views in which every layer knows something of the grades, by pooling; and the grades."""
    random = np.random.default_rng(seed)
    gold = random.random(pairs) * 5
    left, right = {}, {}
    for pooling in poolings:
        left[pooling] = random.normal(size=(pairs, layers, width))
        spread = (6 - gold)[:, None, None] * np.linspace(0.4, 0.7, layers)[:, None]
        right[pooling] = left[pooling] + random.normal(size=(pairs, layers, width)) * spread
    return left, right, gold


class Naive:
    """Scores one set at a time; the best is that with the highest score, then the fewest and the lowest layers."""

    def __init__(self, left, right, gold):
        self.left, self.right, self.gold = left, right, gold
        self.layers = next(iter(left.values())).shape[1]
        sizes = range(1, self.layers + 1)
        self.sets = [(p, s) for p in left for size in sizes for s in combinations(range(self.layers), size)]

    def score(self, chosen, rows):
        pooling, layers = chosen
        a, b = (side[pooling][rows][:, list(layers)].mean(1) for side in (self.left, self.right))
        cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        return spearmanr(np.round(cosines, 12), self.gold[rows]).statistic

    def best(self, rows, keep=lambda layers: True):
        kept = [chosen for chosen in self.sets if keep(chosen[1])]
        return min(kept, key=lambda c: (-round(self.score(c, rows), 10), len(c[1]), c[1][-1], sum(2**i for i in c[1])))


def layers_of(mix):
    """The layers and the pooling of a mix's text, however it writes ranges."""
    layers, pooling = mix.split(" @ ")
    spans = [list(map(int, part.split("-"))) for part in layers.split(",")]
    return pooling, tuple(layer for span in spans for layer in range(span[0], span[-1] + 1))


def assert_line(line, scores, mixes):
    assert line.mean == pytest.approx(np.mean(scores), abs=1e-9)
    assert line.sd == pytest.approx(np.std(scores, ddof=1) if len(scores) > 1 else np.nan, abs=1e-9, nan_ok=True)
    assert [layers_of(mix) for mix in line.mixes] == mixes


@pytest.fixture(params=SETTINGS)
def setting(request):
    return SETTINGS[request.param]


def test_the_best_of_each_size(setting):
    views = made_up(poolings=("mean", "cls"))
    scorer, naive = scorer_of(*views, **setting), Naive(*views)
    lines = by_size(scorer)
    assert [line.name for line in lines] == ["1 layers", "2 layers", "3 layers", "4 layers"]
    for size, line in enumerate(lines, start=1):
        chosen = [naive.best(dev, lambda layers, size=size: len(layers) == size) for dev, _ in scorer.splits]
        scores = [naive.score(best, test) for best, (_, test) in zip(chosen, scorer.splits, strict=True)]
        assert_line(line, scores, chosen)


def test_the_best_without_each_layer(setting):
    views = made_up(seed=1)
    scorer, naive = scorer_of(*views, **setting), Naive(*views)
    lines = without_each(scorer)
    assert [line.name for line in lines] == ["without 0", "without 1", "without 2", "without 3"]
    assert [line.number for line in lines] == [0, 1, 2, 3]
    for layer, line in enumerate(lines):
        chosen = [naive.best(dev, lambda layers, layer=layer: layer not in layers) for dev, _ in scorer.splits]
        scores = [naive.score(best, test) for best, (_, test) in zip(chosen, scorer.splits, strict=True)]
        assert_line(line, scores, chosen)


def test_without_a_layer_only_within_the_space():
    left, right, gold = made_up(seed=1)
    scorer = scorer_of(left, right, gold, space="with 1; without 3", dev=40)
    assert [line.name for line in without_each(scorer)] == ["without 0", "without 2"], "every set has layer 1"
    assert [line.name for line in by_size(scorer)] == ["1 layers", "2 layers", "3 layers"]
    assert [line.number for line in by_size(scorer)] == [1, 2, 3]


def test_mixes_that_nobody_chose(setting):
    views = made_up(poolings=("mean", "cls"), layers=5)
    scorer, naive = scorer_of(*views, **setting), Naive(*views)
    sets = {"last": (4,), "last-4": (1, 2, 3, 4), "first-last": (1, 4), "0+last": (0, 4), "all": (0, 1, 2, 3, 4)}
    for pooling in ("mean", "cls"):
        lines = fixed_mixes(scorer, pooling=pooling)
        assert [line.name for line in lines] == list(sets)
        for line, layers in zip(lines, sets.values(), strict=True):
            scores = [naive.score((pooling, layers), test) for _, test in scorer.splits]
            assert_line(line, scores, [(pooling, layers)])
    (own,) = fixed_mixes(scorer, ["0,2"])
    assert own.mean == pytest.approx(np.mean([naive.score(("mean", (0, 2)), test) for _, test in scorer.splits]))
    assert fixed_mixes(scorer)[0].mean == pytest.approx(scorer.last.test, abs=1e-9)


def test_a_shallow_encoder_has_no_last_four():
    names = [line.name for line in fixed_mixes(scorer_of(*made_up(layers=3), dev=40))]
    assert names == ["last", "first-last", "0+last", "all"]


def test_fixed_mixes_of_a_pooling_that_was_not_searched():
    scorer = scorer_of(*made_up(poolings=("cls",)), dev=40)
    assert len(fixed_mixes(scorer, pooling="cls")) == 5
    with pytest.raises(InputError, match="needs max views; these are cls"):
        fixed_mixes(scorer, pooling="max")


def test_random_sets_by_mean_and_deviation(setting):
    views = made_up(poolings=("mean", "cls"))
    scorer, naive = scorer_of(*views, **setting), Naive(*views)
    line = random_sets(scorer, count=12, seed=3)
    assert line.name == "12 random sets"
    drawn = [layers_of(mix) for mix in line.mixes]
    assert len(set(drawn)) == 12, "no set twice"
    assert_line(line, [np.mean([naive.score(c, test) for _, test in scorer.splits]) for c in drawn], drawn)
    assert line == random_sets(scorer, count=12, seed=3)
    assert line.mixes != random_sets(scorer, count=12, seed=4).mixes


def test_more_random_sets_than_there_are_is_all_of_them():
    views = made_up(layers=3)
    scorer, naive = scorer_of(*views, dev=40), Naive(*views)
    line = random_sets(scorer)
    assert line.name == "7 random sets"
    assert sorted(map(layers_of, line.mixes)) == sorted(naive.sets)
    (_, test) = scorer.splits[0]
    scores = [naive.score(chosen, test) for chosen in naive.sets]
    assert (line.mean, line.sd) == pytest.approx((np.mean(scores), np.std(scores, ddof=1)), abs=1e-9)


def test_training_sizes_down_to_the_fewest_pairs():
    views = made_up(pairs=350, layers=3)
    scorer, naive = scorer_of(*views, dev=320), Naive(*views)
    found = by_training_size(scorer, draws=2, seed=5)
    assert [size for size, _, _ in found] == [320, 160, 80, 40, 20, 10, 5]
    random = np.random.default_rng(5)
    (dev, test) = scorer.splits[0]
    last = naive.score(("mean", (2,)), test)
    for size, chosen, baseline in found:
        draws = [random.permutation(dev)[:size] for _ in range(1 if size == 320 else 2)]
        best = [naive.best(rows) for rows in draws]
        assert chosen.name == f"{size} pairs choose"
        assert_line(chosen, [naive.score(one, test) for one in best], best)
        assert baseline.mean == pytest.approx(last, abs=1e-9)
    assert found[0][1].mean == pytest.approx(scorer.best.test, abs=1e-9)


def test_training_sizes_over_splits_stop_at_the_fewest_pairs():
    views = made_up(pairs=100, layers=3)
    scorer, naive = scorer_of(*views, dev=48, splits=3), Naive(*views)
    found = by_training_size(scorer, (1, 1 / 4, 1 / 8, 1 / 16), draws=2)
    assert [size for size, _, _ in found] == [48, 12, 6], "3 pairs can't choose"
    assert [len(chosen.mixes) for _, chosen, _ in found] == [3, 6, 6], "draws of each split"
    whole = found[0][1]
    best = [naive.best(dev) for dev, _ in scorer.splits]
    assert_line(whole, [naive.score(one, part[1]) for one, part in zip(best, scorer.splits, strict=True)], best)


def test_no_training_size_is_large_enough():
    scorer = scorer_of(*made_up(), dev=40)
    with pytest.raises(InputError, match="No size of 40 dev pairs is large enough: 5 must choose"):
        by_training_size(scorer, (1 / 16,))


def test_training_sizes_with_rare_labels():
    """Some draws of few pairs hold no positive one; they can't choose, but that must not end the ablation."""
    left, right, gold = made_up(pairs=200)
    labels = (gold > 4.5).astype(int)
    scorer = scorer_of(left, right, labels, metric="cosine_ap", dev=100)
    found = by_training_size(scorer)
    assert [size for size, _, _ in found][:3] == [100, 50, 25]
    assert all(np.isfinite(chosen.mean) for _, chosen, _ in found)


def test_ablations_of_retrieval():
    left, right, _ = made_up(pairs=60, layers=3, seed=2)
    search = Search(metric="mrr@10", dev=30, n_resamples=20).fit_queries(left, right, range(60))
    scorer = search.selection_.scorer
    (dev, test) = scorer.splits[0]

    def mrr(layers, rows):
        a, b = (side["mean"][:, list(layers)].mean(1) for side in (left, right))
        a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
        similarities = a @ b.T
        places = (similarities > np.diag(similarities)[:, None]).sum(1)[rows] + 1
        return np.where(places <= 10, 1 / places, 0).mean()

    for line, size in zip(by_size(scorer), (1, 2, 3), strict=True):
        chosen = max(combinations(range(3), size), key=lambda layers: mrr(layers, dev))
        assert line.mean == pytest.approx(mrr(chosen, test), abs=1e-9)
    assert fixed_mixes(scorer, ["last"])[0].mean == pytest.approx(mrr((2,), test), abs=1e-9)


def test_ablations_of_a_beam():
    left, right, gold = made_up(layers=8)
    scorer = scorer_of(left, right, gold, method="beam", dev=40, splits=2)
    assert {line.name for line in by_size(scorer)} >= {"1 layers", "2 layers"}
    assert len(without_each(scorer)) == 8
    assert [size for size, _, _ in by_training_size(scorer, draws=1)] == [40, 20, 10, 5]
