"""Searches of views: planted views are found and priced, and what reports has never chosen."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from layerwise.data import pairs_in_memory
from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.evidence import draw_splits, fixed_splits
from layerwise.mixes import Mean, View
from layerwise.model import LayerModel
from layerwise.search import Prices, Search, ViewScorer, as_metric, prices_of, view_poolings
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.unlabelled import no_splits
from layerwise.search.view_fit import Corpus
from layerwise.search.views import ViewOptions
from support.text_pairs import some_pairs
from support.tiny import DEPTH, save_decoder

LAYERS, WIDTH, PAIRS = 5, 16, 120
POOLINGS = ["mean", "last in eol", "mean in eol", "mean in echo"]
GOOD = [("last in eol", 3), ("mean in echo", 1)]
HALVES = [(np.arange(60), np.arange(60, PAIRS))]


class Planted:
    """Made-up views: all noise, but for two whose noises cancel out. One view is the same for all texts."""

    def __init__(self, seed=0, shift=0.0):
        random = np.random.default_rng(seed)
        self.gold = random.uniform(-0.9, 0.9, PAIRS)
        left, side = random.normal(size=(2, PAIRS, WIDTH))
        left /= np.linalg.norm(left, axis=1, keepdims=True)
        side -= (side * left).sum(1, keepdims=True) * left
        side /= np.linalg.norm(side, axis=1, keepdims=True)
        right = self.gold[:, None] * left + np.sqrt(1 - self.gold[:, None] ** 2) * side
        signal = np.concatenate([left, right])
        noise = random.normal(size=(2 * PAIRS, WIDTH)) * 0.4
        self.left = [f"left {row}" for row in range(PAIRS)]
        self.right = [f"right {row}" for row in range(PAIRS)]
        self.rows = {text: row for row, text in enumerate([*self.left, *self.right])}
        self.views = {name: random.normal(size=(2 * PAIRS, LAYERS, WIDTH)) for name in POOLINGS}
        self.views["last in eol"][:, 3] = 5 * (signal + noise) + shift
        self.views["mean in echo"][:, 1] = 5 * (signal - noise) + shift
        self.views["last in eol"][:, 0] = 1.0
        self.asked = []

    def __call__(self, texts, poolings):
        self.asked.append((tuple(texts), tuple(poolings)))
        rows = [self.rows[text] for text in texts]
        return {name: self.views[name][rows].astype(np.float32) for name in poolings}

    def scorer(
        self, poolings=POOLINGS, *, corpus=None, dev=0.5, splits=1, parts=None, seed=0, metric="spearman", **options
    ):
        pairs = GradedPairs.of(self.left, self.right, self.gold, metric=as_metric(metric), encode=self)
        if parts is not None:
            drawn = fixed_splits(parts, texts=pairs.unit_texts)
        elif dev == "all":
            drawn = no_splits(len(pairs))
        else:
            drawn = draw_splits(len(pairs), dev, splits, seed, texts=pairs.unit_texts)
        fitted = None if corpus is None else Corpus(corpus, self, "cpu")
        checked = ViewOptions(poolings=tuple(poolings), **{"n_bootstraps": 4} | options)
        return ViewScorer(pairs, drawn, checked, Prices(LAYERS - 1), corpus=fitted, seed=seed)

    def fit(self, *arguments, seed=0, n_resamples=200, **options):
        scorer = self.scorer(*arguments, seed=seed, **options)
        return Search(seed=seed, n_resamples=n_resamples).fit_scorer(scorer).selection_


def parts_of(mix):
    return sorted((view.pooling, view.layer) for view in mix.views)


@pytest.fixture(scope="module")
def planted():
    return Planted()


@pytest.fixture(scope="module")
def selection(planted):
    return planted.fit()


# What is chosen, and what it is worth


def test_planted_views_are_found_together(selection):
    assert parts_of(selection.chosen.mix) == sorted(GOOD)
    assert selection.chosen.test == pytest.approx(1, abs=0.03)
    assert abs(selection.last.test) < 0.4
    assert selection.verdict.is_gain
    assert selection.verdict.use is selection.chosen
    assert str(selection.verdict).startswith("Use views(")
    assert np.isnan(selection.scorer.singles["last in eol"][0]), "a view that is the same for all texts has no score"
    assert [row.dev for row in selection.table] == sorted((row.dev for row in selection.table), reverse=True)
    assert len(selection.table) == len(POOLINGS) * LAYERS - 1


def test_scores_are_those_of_the_mix_itself(planted):
    selection = planted.fit(seed=3)
    _, test = selection.splits[0]
    mix = selection.chosen.mix
    views = planted([*planted.left, *planted.right], list(mix.poolings))
    embeddings = mix.combine(np.stack([views[name][:, list(mix.layers)] for name in mix.poolings], axis=1))
    left, right = embeddings[:PAIRS], embeddings[PAIRS:]
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert selection.chosen.test == pytest.approx(spearmanr(cosines[test], planted.gold[test]).statistic, abs=1e-6)
    assert selection.scorer.pairs.similarities(mix, test) == pytest.approx(cosines[test], abs=1e-5)
    draws = [np.random.default_rng(1).choice(test, len(test)) for _ in range(3)]
    expected = [[spearmanr(cosines[draw], planted.gold[draw]).statistic] for draw in draws]
    assert selection.scorer.redraw(0, [mix])(draws) == pytest.approx(np.array(expected), abs=1e-5)


def test_noise_keeps_the_last_layer():
    kept = 0
    for seed in range(8):
        planted = Planted(seed)
        planted.gold = np.random.default_rng(seed + 100).random(PAIRS)
        selection = planted.fit(n_bootstraps=2, max_views=3)
        kept += selection.verdict.use is selection.last
        assert selection.last.mix == Mean.of(LAYERS - 1)
    assert kept >= 7


def test_several_splits_and_fixed_ones(planted):
    several = planted.fit(splits=3, dev=60)
    assert len(several.choices) == 3
    assert several.chosen.test == pytest.approx(np.mean([choice.best.test for choice in several.choices]))
    assert parts_of(several.chosen.mix) == sorted(GOOD)
    rows = np.arange(PAIRS)
    fixed = planted.fit(parts=[(rows[:70], rows[70:])])
    assert (fixed.n_choosing, fixed.n_reporting) == (70, 50)
    every = planted.fit(dev="all")
    assert parts_of(every.chosen.mix) == sorted(GOOD)
    assert every.gain is None
    assert every.chosen.test is None


def test_only_what_was_asked_for_is_searched(planted):
    selection = planted.fit(["last in eol"])
    assert set(selection.scorer.singles) == {"last in eol"}
    assert parts_of(selection.chosen.mix) == [("last in eol", 3)]
    assert selection.last.mix.pooling == "mean", "it is compared with the last layer by the model's own pooling"


def test_resamples_of_one_grade_choose_nothing():
    planted = Planted()
    planted.gold = np.zeros(PAIRS)
    planted.gold[[3, 70]] = 1.0
    assert planted.fit(parts=HALVES).chosen.mix.poolings


# Choosing pairs apart from those that report


def test_no_reporting_text_is_read_before_the_choice(planted):
    planted.asked.clear()
    selection = planted.fit()
    dev, test = selection.splits[0]
    reporting = {text for row in test for text in (planted.left[row], planted.right[row])}
    for number, (texts, poolings) in enumerate(planted.asked):
        if reporting & set(texts):
            assert set(poolings) <= {*selection.chosen.mix.poolings, "mean"}, "only the chosen views and the last layer"
            assert number >= 2 * 3, "the screening and the full search of each prompt"
    assert len(dev) + len(test) == PAIRS


def test_pairs_that_share_a_sentence_choose_or_report_together():
    planted = Planted()
    planted.right = [planted.right[row - row % 4] for row in range(PAIRS)]
    selection = planted.fit()
    dev, test = selection.splits[0]
    chose = {text for row in dev for text in (planted.left[row], planted.right[row])}
    assert not chose & {text for row in test for text in (planted.left[row], planted.right[row])}
    assert len(dev) + len(test) == PAIRS
    assert any("30 groups that share sentences" in warning for warning in selection.warnings)


def test_declared_reporting_pairs_that_share_a_sentence_are_left_out():
    planted = Planted()
    planted.right[60:63] = planted.right[:3]
    selection = planted.fit(parts=HALVES)
    assert selection.n_reporting == 57
    assert selection.facts.protocol.left_out == 3
    assert any("3 of 60 reporting pairs are left out" in warning for warning in selection.warnings)


def test_near_copies_of_choosing_sentences_report_and_are_counted():
    views = Planted()
    views.right = [f"{text.upper()}!" for text in np.roll(views.left, 1)]
    views.rows = {text: row for row, text in enumerate([*views.left, *views.right])}
    selection = views.fit(["last in eol"], n_bootstraps=0)
    ((dev, test),) = selection.splits
    neighbours = {*(dev - 1) % PAIRS, *(dev + 1) % PAIRS}
    assert selection.splits.left_out == 0
    assert selection.facts.protocol.near_copies == len(neighbours & {*test}) > 0


# The screening, and costs


def test_the_screening_keeps_the_best_prompts_with_their_poolings(planted):
    scorer = planted.scorer(n_prompts=2, screen_pairs=40)
    assert set(scorer.kept) == {"last in eol", "mean in eol", "mean in echo"}
    assert set(scorer.singles) == set(POOLINGS)


def test_the_screening_is_of_the_first_choosing_pairs(planted):
    scorer = planted.scorer(screen_pairs=40)
    rows = scorer.splits[0].dev[:40]
    views = planted([*planted.left, *planted.right], ["mean in echo"])["mean in echo"]
    unit = views / np.linalg.norm(views, axis=-1, keepdims=True)
    expected = [
        spearmanr((unit[rows, n] * unit[PAIRS + rows, n]).sum(-1), planted.gold[rows])[0] for n in range(LAYERS)
    ]
    assert scorer.singles["mean in echo"] == pytest.approx(expected, abs=1e-5)


def test_the_screening_counts_no_layer_that_costs_too_much(planted):
    assert set(planted.scorer(n_prompts=1).kept) == {"last in eol", "mean in eol"}
    assert planted.scorer(n_prompts=1, max_cost=0.25).kept == ["mean in echo"]  # its layer 1; the other good one is 3


def test_the_screening_is_of_the_forms_that_may_be_taken():
    far = Planted(shift=40.0)  # unchanged, all texts point the same way
    assert far.scorer(n_prompts=1, remove=(0,)).kept == ["last in eol", "mean in eol"]
    raw, centred, both = (far.scorer(remove=forms).singles["last in eol"][3] for forms in ((None,), (0,), (None, 0)))
    assert centred > raw
    assert both == centred


def test_one_pass_serves_all_poolings_of_a_prompt(planted):
    planted.asked.clear()
    planted.fit(corpus=["left 0", "left 1", "right 2"], remove=(0,))
    passes = [poolings for _, poolings in planted.asked if len(poolings) > 1 or "in eol" in poolings[0]]
    assert ("last in eol", "mean in eol") in passes
    of_corpus = [poolings for texts, poolings in planted.asked if texts == ("left 0", "left 1", "right 2")]
    assert sorted(of_corpus) == [("last in eol", "mean in eol"), ("mean",), ("mean in echo",)]


def test_costs_limit_what_is_chosen(planted, selection):
    assert selection.chosen.cost.blocks == (3, 1)
    assert selection.chosen.cost.passes == 1.0
    assert selection.chosen.cost == Prices(LAYERS - 1).of_mix(selection.chosen.mix)
    assert [point.cost.passes for point in selection.front] == sorted(point.cost.passes for point in selection.front)
    assert [point.dev for point in selection.front] == sorted(point.dev for point in selection.front)
    assert len(planted.fit(max_passes=1).chosen.cost.blocks) == 1
    cheap = planted.fit(max_cost=0.25)
    assert parts_of(cheap.chosen.mix) == [GOOD[1]]
    assert cheap.chosen.cost.passes <= 0.25
    assert str(planted.fit(max_cost=float("inf")).chosen.mix) == str(selection.chosen.mix)
    embeddings = planted.fit(max_cost=1e-6)
    assert embeddings.chosen.mix.layers == (0,)
    assert {point.cost.passes for point in embeddings.front} == {0}
    with pytest.raises(InputError, match="No view that may be taken"):
        planted.fit(["last in eol"], max_cost=0.1, n_prompts=1)


def test_a_single_pass_may_be_any_prompt_that_passed_the_screening():
    many = Planted()
    random, prompts = np.random.default_rng(1), ["eol", "thinking", "knowledge", "summary", "topic", "event", "gist"]
    names = [f"last in {name}" for name in (*prompts, "follows", "keywords", "question")]
    hidden = names[-1]
    for name in names:
        noise = random.normal(size=(2 * PAIRS, LAYERS, WIDTH))
        many.views[name] = noise + (many.views["last in eol"][:, [3]] / 12 if name != hidden else 0.0)
    many.views[hidden][:, 1] = many.views["mean in echo"][:, 1]
    many.views[hidden][:, 2] = Planted().views["last in eol"][:, 3]
    selection = many.fit(names, max_passes=1, max_cost=1.0)
    assert parts_of(selection.chosen.mix) == [(hidden, 1), (hidden, 2)]


def test_prices_are_tokens_and_blocks(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    prices = prices_of(encoder, ["mean", "mean in twice"], ["old river", "rain"])
    plain, twice = 3.5, (4 + 2 + 2 + 2) / 2
    cost = prices.of({"mean": (2,), "cls": (1,), "mean in twice": (1, 4)})
    assert cost.blocks == (2, 4)
    assert cost.tokens == (plain, twice)
    assert cost.passes == pytest.approx(6 / DEPTH)
    assert cost.work == pytest.approx((2 * plain + 4 * twice) / (DEPTH * plain))


def test_the_front_of_several_splits_has_their_mean_scores(planted):
    options = {"n_bootstraps": 0, "max_views": 2, "beam_width": 2}
    selection = planted.fit(splits=2, **options)
    expected = []
    for cost in (1 / (LAYERS - 1), 1 / 6, 1 / 2, 1, 2, None):
        alone = []
        for part in selection.splits:
            try:
                alone.append(planted.fit(parts=[part], max_cost=cost, **options).chosen)
            except InputError:
                alone.append(None)
        if None not in alone:
            expected.append(np.mean([[best.dev, best.test] for best in alone], axis=0))
    assert len(selection.front) > 1
    for point in selection.front:
        assert any(np.allclose([point.dev, point.test], scores) for scores in expected)
    assert selection.front[-1].dev == pytest.approx(max(dev for dev, _ in expected))
    assert selection.front[-1] == selection.chosen
    assert [point.dev for point in selection.front] == sorted({point.dev for point in selection.front})


# What is removed from views


@pytest.mark.parametrize(
    ("corpus", "texts", "name"),
    [(None, PAIRS, "The choosing pairs"), (["left 0", "left 1", "left 0"], 2, "The corpus")],
)
def test_more_components_than_texts_are_refused_before_any_text_is_encoded(corpus, texts, name):
    planted = Planted()
    with pytest.raises(InputError, match=f"{name}: {texts} different texts have too few components .* {texts - 2}"):
        planted.fit(remove=(None, 400), corpus=corpus)
    assert not planted.asked


def test_what_all_texts_share_is_removed():
    planted = Planted(shift=200.0)
    plain, removed = planted.fit(), planted.fit(remove=(None, 0, 2))
    assert removed.chosen.mix.components is not None
    assert removed.chosen.test > plain.chosen.test
    fitted = planted.fit(remove=(0,), corpus=planted.left).chosen.mix
    view = fitted.views[0]
    expected = planted(planted.left, [view.pooling])[view.pooling][:, view.layer].mean(0)
    assert np.allclose(fitted.fitted.means[0].numpy(), expected, atol=1e-3)
    corpus = Corpus([*planted.left, planted.left[0]], planted, "cpu")
    assert len(corpus.texts) == PAIRS
    assert corpus.fit(["mean"], 1)["mean"] is corpus.fit(["mean", "mean in echo"], 1)["mean"]


def test_the_choosing_pairs_decide_which_text_is_fitted_on():
    planted = Planted(shift=200.0)
    far = [f"far {row}" for row in range(12)]
    for name, views in planted.views.items():  # a text unlike the pairs', without what they share
        planted.views[name] = np.concatenate([views, np.random.default_rng(1).normal(size=(12, LAYERS, WIDTH))])
    planted.rows |= {text: 2 * PAIRS + row for row, text in enumerate(far)}

    def fit(**options):
        selection = planted.fit(**{"remove": (0, 2), "splits": 2, "max_views": 3, "beam_width": 2} | options)
        return selection.chosen, selection.scorer.fitted_on

    pairs, either, corpus = fit(), fit(corpus=far, fit_on="either"), fit(corpus=far)
    assert (corpus[1], pairs[1], either[1]) == ("corpus", "pairs", "pairs")
    assert corpus[0].test < pairs[0].test == either[0].test
    assert either[0].dev == max(pairs[0].dev, corpus[0].dev)
    assert fit(corpus=far, fit_on="pairs") == pairs
    one = {"remove": (2,), "splits": 1, "corpus": planted.left}
    best, fitted_on = fit(**one, fit_on="either")
    alone = {name: fit(**one, fit_on=name)[0].dev for name in ("corpus", "pairs")}
    assert alone[fitted_on] == best.dev == max(alone.values())
    assert fit(corpus=far, fit_on="either", remove=(None,))[1] is None, "nothing is removed"
    with pytest.raises(InputError, match="there is no corpus to choose"):
        fit(fit_on="either")
    with pytest.raises(InputError, match=r"Unknown fit_on 'ether'. Did you mean 'either'"):
        fit(fit_on="ether", corpus=far)


def test_forms_are_searched_one_by_one_and_together():
    planted = Planted(shift=2.0)
    forms = (None, 0, 2)
    together = planted.fit(remove=forms)
    assert together.chosen.dev >= max(planted.fit(remove=(one,)).chosen.dev for one in forms)
    assert planted.fit(remove=(0, 0)).chosen.mix == planted.fit(remove=(0,)).chosen.mix


class Disturbed(Planted):
    """The one good view has noise, which another view has too; the remaining views say nothing."""

    def __init__(self):
        super().__init__()
        disturbance = np.random.default_rng(5).normal(size=(2 * PAIRS, WIDTH))
        self.views["mean in echo"] = np.random.default_rng(6).normal(size=(2 * PAIRS, LAYERS, WIDTH))
        self.views["mean"][:, 2] = disturbance / np.linalg.norm(disturbance, axis=1, keepdims=True)
        good = self.views["last in eol"][:, 3]
        self.views["last in eol"][:, 3] = good / np.linalg.norm(good, axis=1, keepdims=True) + self.views["mean"][:, 2]


def test_a_negative_weight_removes_the_noise_of_another_view():
    disturbed = Disturbed()
    selection = disturbed.fit(n_bootstraps=10)
    chosen = selection.chosen
    weights = dict(zip(parts_of(chosen.mix), chosen.mix.weights, strict=True))
    assert weights["last in eol", 3] > 0 > weights["mean", 2]
    positive = disturbed.fit(n_bootstraps=10, signed=False).chosen
    assert min(positive.mix.weights, default=1.0) > 0
    assert chosen.test > positive.test + 0.1
    cosines = selection.scorer.pairs.similarities(chosen.mix, np.arange(PAIRS))
    expected = spearmanr(cosines, disturbed.gold).statistic
    assert selection.scorer.score(chosen.mix) == pytest.approx(expected, abs=1e-6)
    centred = disturbed.fit(n_bootstraps=10, remove=(0,)).chosen  # only unchanged views may have negative weights
    assert min(centred.mix.weights, default=1.0) > 0


@pytest.mark.parametrize("n_bootstraps", [0, 3])
def test_a_handful_of_pairs_never_chooses_a_view_minus_itself(planted, n_bootstraps):
    for seed in range(12):
        chosen = planted.fit(["mean"], dev=5, splits=2, seed=seed, n_bootstraps=n_bootstraps).chosen
        assert chosen.mix.layers


def candidates_of(planted):
    """The candidates of two poolings in two forms for the first half of the pairs, and their scorer."""
    scorer = planted.scorer(["last in eol", "mean in echo"], remove=(None, 2), parts=HALVES)
    ((_, candidates),) = scorer._candidates(HALVES[0][0], ["last in eol", "mean in echo"])
    return scorer, candidates


def test_views_and_their_negatives_make_one_count():
    scorer, candidates = candidates_of(Planted())
    views = len(candidates.names) // 3  # unchanged, their negatives, without 2 components
    assert candidates.views.columns.tolist() == [*range(views), *(~n for n in range(views)), *range(views, 2 * views)]
    assert [len(one.names) for one in candidates.by_form_and_all()] == [2 * views, views, 3 * views]
    counts = {0: 5, views: 2, views + 1: 3, 2: 4, views + 2: 4, 2 * views: 1}
    net = candidates.net_counts(counts)
    assert net == {0: 3, 1: -3, 2 * views: 1}
    mix = candidates.mix(net)
    assert mix.weights == (3.0, -3.0, 1.0)
    expected = candidates.views.cosines(list(counts), list(map(float, counts.values()))).numpy()
    assert scorer.pairs.similarities(mix, HALVES[0][0]) == pytest.approx(expected, abs=1e-5)


def test_a_mix_of_forms_gives_what_the_search_scored():
    scorer, candidates = candidates_of(Planted(shift=2.0))
    alone = list(candidates.by_form_and_all())
    assert [{view.remove for view in one.names} for one in alone] == [{None}, {2}, {None, 2}]
    places = {view: place for place, view in reversed(list(enumerate(candidates.names)))}
    counts = {places[View(3, "last in eol")]: 2, places[View(1, "mean in echo", 2)]: 1}
    counts[places[View(3, "last in eol", 2)]] = 3
    mix = candidates.mix(counts)
    assert str(mix) == "views(2*3 @ last in eol; 3*3 @ last in eol less 2; 1 @ mean in echo less 2; unit)"
    chosen = sorted(counts)
    expected = candidates.views.cosines(chosen, [float(counts[view]) for view in chosen]).numpy()
    assert scorer.pairs.similarities(mix, HALVES[0][0]) == pytest.approx(expected, abs=1e-5)
    one = alone[1]
    place = one.names.index(View(1, "mean in echo", 2))
    only = one.mix({place: 1})
    assert str(only) == "views(1 @ mean in echo; unit; less 2)"
    assert scorer.pairs.similarities(only, HALVES[0][0]) == pytest.approx(one.views.cosines([place]).numpy(), abs=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_prompts": 0}, "n_prompts 0 is not possible; give at least 1"),
        ({"max_views": 0}, "max_views 0"),
        ({"beam_width": 0}, "beam_width 0"),
        ({"n_bootstraps": -1}, "n_bootstraps -1"),
        ({"screen_pairs": 0}, "screen_pairs 0"),
        ({"max_cost": float("nan")}, "max_cost nan"),
        ({"max_cost": 0}, "max_cost 0 is not possible; give more than 0"),
        ({"max_passes": 0}, "max_passes 0"),
        ({"remove": ()}, "remove .* is not possible"),
        ({"remove": (-1, 8)}, "remove .* is not possible"),
    ],
)
def test_options_that_no_search_can_have_are_refused_before_a_model_is_loaded(options, message):
    with pytest.raises(InputError, match=message):
        ViewOptions(**options)
    with pytest.raises(InputError, match=message):
        Search(prompts=["eol"], **options).fit("no model of this name", [("a", "b", 1.0)] * 10)


def test_options_that_do_not_fit_the_views_are_refused(planted):
    with pytest.raises(InputError, match="at most 15"):
        planted.fit(remove=(WIDTH,))
    with pytest.raises(InputError, match="No poolings to search"):
        planted.fit([])


def test_views_that_are_the_same_for_all_texts_are_refused_in_one_line():
    constant = Planted()
    constant.views["mean"][:] = 1.0
    with pytest.raises(InputError, match="No view that may be taken tells the choosing pairs apart"):
        constant.fit(["mean"])


def test_scores_below_minus_one_are_scores():
    constant = Planted()
    constant.views["mean"][:] = 1.0

    def closeness(similarities, gold):
        return -10 - np.square(np.asarray(similarities) - gold).mean()

    assert "mean" not in constant.scorer(n_prompts=2, metric=closeness).kept


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold": [1.0] * PAIRS}, "All 120 scores are 1: constant scores"),
        ({"left": ["left 0"]}, "the lengths differ"),
        ({"left": ["left 0"] * PAIRS}, "too few"),
    ],
)
def test_bad_pairs_are_refused(change, message):
    planted = Planted()
    vars(planted).update(change)
    with pytest.raises(InputError, match=message):
        planted.fit()


# Stability


def test_halves_choose_what_a_search_by_brute_force_chooses(monkeypatch):
    monkeypatch.setattr("layerwise.search.views._HALVES", 3)
    views = Planted()
    selection = views.fit(max_views=1, signed=False)
    dev, _ = selection.splits[0]
    random, winners = np.random.default_rng(0), []
    single = views([*views.left, *views.right], POOLINGS)
    for _ in range(3):
        order = random.permutation(len(dev))
        for rows in (order[: len(dev) // 2], order[len(dev) // 2 : 2 * (len(dev) // 2)]):
            scores = {}
            for name in selection.scorer.kept:
                unit = single[name] / np.linalg.norm(single[name], axis=-1, keepdims=True)
                cosines = (unit[dev[rows]] * unit[PAIRS + dev[rows]]).sum(-1)
                layers = range(1 if name == "last in eol" else 0, LAYERS)  # its layer 0 is constant
                scores |= {f"{n} @ {name}": spearmanr(cosines[:, n], views.gold[dev[rows]])[0] for n in layers}
            winners.append(max(scores, key=scores.get))
    stability = selection.stability
    assert stability.views == pytest.approx({view: winners.count(view) / 6 for view in winners})
    assert stability.agreement == np.mean([a == b for a, b in zip(winners[::2], winners[1::2], strict=True)])
    assert sum(stability.poolings.values()) == pytest.approx(1)


def test_planted_views_are_stable_and_limits_hold_for_halves(planted, selection):
    stability = selection.stability
    assert {*list(stability.views)[:2]} == {"3 @ last in eol", "1 @ mean in echo"}
    assert stability.views["3 @ last in eol"] == stability.poolings["last in eol"] == 1.0
    assert 0 < stability.agreement <= 1
    cheap = planted.fit(max_cost=1.5 / (LAYERS - 1)).stability
    assert all(int(view.removeprefix("-").split(" @ ")[0]) <= 1 for view in cheap.views)
    centred = planted.fit(remove=(None, 0)).stability
    assert any(view.endswith(" less mean") for view in centred.views)


# From a model to a saved model


@pytest.mark.slow
def test_a_real_decoder_from_pairs_to_a_saved_model(tmp_path):
    encoder = LayerEncoder(save_decoder("llama", tmp_path / "llama"), device="cpu")
    model, pairs = LayerModel(encoder), some_pairs(60)
    views = encoder.encode_layers([*pairs.left, *pairs.right], "last in eol")[:, 2]
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (views[:60], views[60:]))
    graded = pairs_in_memory(pairs.left, pairs.right, (left * right).sum(1).tolist())
    search = Search(prompts=["eol", "twice"], remove=(None, 0), max_views=3, beam_width=2, n_bootstraps=4)
    selection = search.fit(model, graded, corpus=pairs.left).selection_
    assert set(selection.scorer.singles) == {"mean", "last in eol", "mean in eol", "mean in twice"}
    assert selection.verdict.is_gain
    assert ("last in eol", 2) in parts_of(selection.verdict.use.mix)
    facts = selection.facts
    assert facts.chosen.cost.forward_passes >= 1
    assert facts.protocol.seen_sentences > 0
    assert facts.protocol.options["remove"] == [None, 0]
    best = selection.model()
    best.save(tmp_path / "best")
    again = LayerModel.load(tmp_path / "best", device="cpu")
    assert again.mix == best.mix == selection.chosen.mix
    assert np.allclose(again.encode(pairs.left[:5]), best.encode(pairs.left[:5]), atol=1e-5)
    assert again.fitted_on[0].what == "layers"
    with pytest.raises(InputError, match=r"32: views of 32 numbers .* at most 31"):
        Search(prompts=["eol"], remove=(0, encoder.width)).fit(model, graded)


def test_a_real_encoder_by_all_poolings(tiny_bert):
    model = LayerModel.load(tiny_bert, device="cpu")
    search = Search(prompts="means", poolings="all", max_passes=1, n_bootstraps=0, max_views=2, beam_width=2)
    selection = search.fit(model, some_pairs(60)).selection_
    assert {"mean", "cls", "max", "mask in means"} <= selection.scorer.singles.keys()
    assert len(selection.chosen.cost.blocks) == 1
    assert model.mix == Mean.of(-1).resolve(DEPTH)
    assert search.verdict_ is selection.verdict


def test_poolings_of_views(tiny_layers):
    assert view_poolings(tiny_layers, [], []) == ["mean"]
    assert view_poolings(tiny_layers, ["cls", "mean"], []) == ["cls", "mean"]
    assert "cls" in view_poolings(tiny_layers, ["all"], [])
