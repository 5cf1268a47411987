"""ViewSearch: planted views are found and priced, and what reports has never chosen."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from layerwise.data import pairs_in_memory
from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.mixes import Mean
from layerwise.model import LayerModel
from layerwise.search import Prices, ViewSearch, search_views, view_poolings
from layerwise.search.view_cost import prices_of
from layerwise.search.view_fit import Corpus
from support.text_pairs import some_pairs
from support.tiny import DEPTH, save_decoder

LAYERS, WIDTH, PAIRS = 5, 16, 120
POOLINGS = ["mean", "last in eol", "mean in eol", "mean in echo"]
GOOD = [("last in eol", 3), ("mean in echo", 1)]


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

    def fit(self, poolings=POOLINGS, corpus=None, **options):
        search = ViewSearch(poolings, **{"bags": 4} | options)
        return search.fit(self, self.left, self.right, self.gold, prices=Prices(LAYERS - 1), corpus=corpus)


def parts_of(mix):
    return sorted((view.pooling, view.layer) for view in mix.views)


@pytest.fixture(scope="module")
def planted():
    return Planted()


def test_planted_views_are_found_together(planted):
    search = planted.fit()
    assert parts_of(search.best_.mix) == sorted(GOOD)
    assert search.best_.test == pytest.approx(1, abs=0.03)
    assert abs(search.last_.test) < 0.4
    assert search.verdict_.is_gain
    assert search.verdict_.use is search.best_
    assert str(search.verdict_).startswith("Use views(")
    assert np.isnan(search.singles_["last in eol"][0]), "a view that is the same for all texts has no score"


def test_scores_are_those_of_the_mix_itself(planted):
    search = planted.fit(seed=3)
    _, test = search.parts_[0]
    mix = search.best_.mix
    views = planted([*planted.left, *planted.right], list(mix.poolings))
    embeddings = mix.combine(np.stack([views[name][:, list(mix.layers)] for name in mix.poolings], axis=1))
    left, right = embeddings[:PAIRS], embeddings[PAIRS:]
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert search.best_.test == pytest.approx(spearmanr(cosines[test], planted.gold[test]).statistic, abs=1e-6)
    assert search.similarities(mix, test) == pytest.approx(cosines[test], abs=1e-5)


def test_no_reporting_text_is_read_before_the_choice(planted):
    planted.asked.clear()
    search = planted.fit()
    dev, test = search.parts_[0]
    reporting = {text for row in test for text in (planted.left[row], planted.right[row])}
    for number, (texts, poolings) in enumerate(planted.asked):
        if reporting & set(texts):
            assert set(poolings) <= {*search.best_.mix.poolings, "mean"}, "only what was chosen, and the last layer"
            assert number >= 2 * 3, "a first look and a full search of each prompt"
    assert len(dev) + len(test) == PAIRS


def test_pairs_that_share_a_sentence_with_a_choosing_one_do_not_report():
    planted = Planted()
    planted.right = [planted.right[row - row % 4] for row in range(PAIRS)]
    search = planted.fit()
    dev, test = search.parts_[0]
    chose = {text for row in dev for text in (planted.left[row], planted.right[row])}
    assert not chose & {text for row in test for text in (planted.left[row], planted.right[row])}
    assert search.left_out_ == PAIRS - len(dev) - len(test) > 0


def test_noise_keeps_the_last_layer():
    kept = 0
    for seed in range(8):
        planted = Planted(seed)
        planted.gold = np.random.default_rng(seed + 100).random(PAIRS)
        search = planted.fit(resamples=300)
        kept += search.verdict_.use is search.last_
        assert search.last_.mix == Mean.of(LAYERS - 1)
    assert kept >= 7


def test_near_copies_of_choosing_sentences_report_and_are_counted():
    views = Planted()
    views.right = [f"{text.upper()}!" for text in np.roll(views.left, 1)]
    views.rows = {text: row for row, text in enumerate([*views.left, *views.right])}
    search = views.fit(["last in eol"], bags=0)
    ((dev, test),) = search.parts_
    assert search.left_out_ == 0
    neighbours = {*(dev - 1) % PAIRS, *(dev + 1) % PAIRS}
    assert search.near_copies_ == len(neighbours & {*test}) > 0


def test_costs_limit_what_is_chosen(planted):
    prices = Prices(LAYERS - 1)
    whole = planted.fit()
    assert whole.cost_.blocks == (3, 1)
    assert whole.cost_.passes == 1.0
    one = planted.fit(max_passes=1)
    assert len(one.cost_.blocks) == 1
    cheap = planted.fit(max_cost=0.25)
    assert parts_of(cheap.best_.mix) == [GOOD[1]]
    assert cheap.cost_.passes <= 0.25
    assert [front.cost.passes for front in whole.front_] == sorted(front.cost.passes for front in whole.front_)
    assert [front.choice.dev for front in whole.front_] == sorted(front.choice.dev for front in whole.front_)
    assert prices.of_mix(whole.best_.mix) == whole.cost_
    with pytest.raises(InputError, match="No view that may be taken"):
        planted.fit(["last in eol"], max_cost=0.1, keep=1)


@pytest.mark.parametrize(
    ("corpus", "texts", "name"),
    [(None, PAIRS, "The choosing pairs"), (["left 0", "left 1", "left 0"], 2, "The corpus")],
)
def test_more_components_than_texts_are_refused_before_any_text_is_encoded(corpus, texts, name):
    planted = Planted()
    with pytest.raises(InputError, match=f"{name}: {texts} different texts have too few components .* {texts - 2}"):
        planted.fit(less=(None, 400), corpus=corpus)
    assert not planted.asked


def test_what_all_texts_share_is_taken_away():
    planted = Planted(shift=200.0)
    plain, less = planted.fit(scale="unit"), planted.fit(scale="unit", less=(None, 0, 2))
    assert less.best_.mix.components is not None
    assert less.best_.test > plain.best_.test
    given = planted.fit(less=(0,), corpus=planted.left)
    assert given.best_.mix.fitted is not None
    view = given.best_.mix.views[0]
    expected = planted(planted.left, [view.pooling])[view.pooling][:, view.layer].mean(0)
    assert np.allclose(given.best_.mix.fitted.means[0].numpy(), expected, atol=1e-3)
    corpus = Corpus([*planted.left, planted.left[0]], planted, "cpu")
    assert len(corpus.texts) == PAIRS
    assert corpus.fit(["mean"], 1)["mean"] is corpus.fit(["mean", "mean in echo"], 1)["mean"]


def test_the_choosing_pairs_decide_which_text_is_fitted_on():
    planted = Planted(shift=200.0)
    far = [f"far {row}" for row in range(12)]
    for name, views in planted.views.items():  # a text unlike the pairs', without what they share
        planted.views[name] = np.concatenate([views, np.random.default_rng(1).normal(size=(12, LAYERS, WIDTH))])
    planted.rows |= {text: 2 * PAIRS + row for row, text in enumerate(far)}
    given = {"less": (0, 2), "splits": 3}
    pairs, either = planted.fit(**given), planted.fit(corpus=far, fit_on="either", **given)
    corpus = planted.fit(corpus=far, **given)
    assert (corpus.fitted_on_, pairs.fitted_on_, either.fitted_on_) == ("corpus", "pairs", "pairs")
    assert corpus.best_.test < pairs.best_.test == either.best_.test
    assert either.best_.dev == max(pairs.best_.dev, corpus.best_.dev)
    assert str(planted.fit(corpus=far, fit_on="pairs", **given).best_) == str(pairs.best_)
    good = planted.fit(corpus=planted.left, fit_on="either", less=(2,))
    alone = {name: planted.fit(corpus=planted.left, fit_on=name, less=(2,)).best_.dev for name in ("corpus", "pairs")}
    assert alone[good.fitted_on_] == good.best_.dev == max(alone.values())
    assert planted.fit(corpus=far, fit_on="either").fitted_on_ is None, "nothing is taken away"
    with pytest.raises(InputError, match="there is no corpus to choose"):
        planted.fit(less=(0,), fit_on="either")
    with pytest.raises(InputError, match=r"Unknown fit_on 'ether'. Did you mean 'either'"):
        planted.fit(less=(0,), fit_on="ether", corpus=far)


def test_forms_are_tried_by_form_and_all():
    planted = Planted(shift=2.0)
    forms = (None, 0, 2)
    together = planted.fit(less=forms)
    assert together.best_.dev >= max(planted.fit(less=(one,)).best_.dev for one in forms)
    assert planted.fit(less=(0, 0)).best_.mix == planted.fit(less=(0,)).best_.mix


class Disturbed(Planted):
    """The one good view has noise, which another view has too; what is left of it says nothing."""

    def __init__(self):
        super().__init__()
        disturbance = np.random.default_rng(5).normal(size=(2 * PAIRS, WIDTH))
        self.views["mean in echo"] = np.random.default_rng(6).normal(size=(2 * PAIRS, LAYERS, WIDTH))
        self.views["mean"][:, 2] = disturbance / np.linalg.norm(disturbance, axis=1, keepdims=True)
        good = self.views["last in eol"][:, 3]
        self.views["last in eol"][:, 3] = good / np.linalg.norm(good, axis=1, keepdims=True) + self.views["mean"][:, 2]


def test_a_view_counts_against_the_noise_of_another():
    disturbed = Disturbed()
    search = disturbed.fit(bags=10)
    weights = dict(zip(parts_of(search.best_.mix), search.best_.mix.weights, strict=True))
    assert weights["last in eol", 3] > 0 > weights["mean", 2]
    positive = disturbed.fit(bags=10, against=False)
    assert min(positive.best_.mix.weights, default=1.0) > 0
    assert search.best_.test > positive.best_.test + 0.1
    rows = np.arange(PAIRS)
    assert search.score(search.best_.mix) == pytest.approx(
        spearmanr(search.similarities(search.best_.mix, rows), disturbed.gold).statistic, abs=1e-6
    )
    centred = disturbed.fit(less=(0,))  # of what is less something, no view counts against others
    assert min(centred.best_.mix.weights, default=1.0) > 0


@pytest.mark.parametrize("bags", [0, 3])
def test_a_handful_of_pairs_never_chooses_a_view_less_itself(planted, bags):
    for seed in range(12):
        search = planted.fit(["mean"], dev=5, splits=2, seed=seed, bags=bags, resamples=10)
        assert search.best_.mix.layers


def test_views_and_their_negatives_make_one_count():
    planted = Planted()
    rows = np.arange(60)
    search = planted.fit(["last in eol", "mean in echo"], less=(None, 2), parts=[(rows, rows + 60)])
    ((_, candidates),) = search._candidates(rows, ["last in eol", "mean in echo"])
    views = len(candidates.names) // 3  # as they are, against, less 2
    assert candidates.views.columns.tolist() == [*range(views), *(~n for n in range(views)), *range(views, 2 * views)]
    assert [len(one.names) for one in candidates.by_form_and_all()] == [2 * views, views, 3 * views]
    counts = {0: 5, views: 2, views + 1: 3, 2: 4, views + 2: 4, 2 * views: 1}
    net = candidates.net_counts(counts)
    assert net == {0: 3, 1: -3, 2 * views: 1}
    mix = candidates.mix(net)
    assert mix.weights == (3.0, -3.0, 1.0)
    expected = candidates.views.cosines(list(counts), list(map(float, counts.values()))).numpy()
    assert search.similarities(mix, rows) == pytest.approx(expected, abs=1e-5)


def test_a_mix_of_forms_gives_what_the_search_scored():
    planted = Planted(shift=2.0)
    rows = np.arange(60)
    search = planted.fit(["last in eol", "mean in echo"], less=(None, 2), parts=[(rows, rows + 60)])
    ((_, candidates),) = search._candidates(rows, ["last in eol", "mean in echo"])
    alone = list(candidates.by_form_and_all())
    assert [{view.less for view in one.names} for one in alone] == [{None}, {2}, {None, 2}]
    names = {view: place for place, view in reversed(list(enumerate(candidates.names)))}
    counts = {names["last in eol", 3, None]: 2, names["mean in echo", 1, 2]: 1, names["last in eol", 3, 2]: 3}
    mix = candidates.mix(counts)
    assert str(mix) == "views(2*3 @ last in eol; 3*3 @ last in eol less 2; 1 @ mean in echo less 2; unit)"
    chosen = sorted(counts)
    expected = candidates.views.cosines(chosen, [float(counts[view]) for view in chosen]).numpy()
    assert search.similarities(mix, rows) == pytest.approx(expected, abs=1e-5)
    one = alone[1]
    (place,) = [place for place, view in enumerate(one.names) if view == ("mean in echo", 1, 2)]
    only = one.mix({place: 1})
    assert str(only) == "views(1 @ mean in echo; unit; less 2)"
    assert search.similarities(only, rows) == pytest.approx(one.views.cosines([place]).numpy(), abs=1e-5)


def test_several_splits_and_fixed_ones(planted):
    several = planted.fit(splits=3, dev=60)
    assert len(several.report_.splits) == 3
    assert several.best_.test == pytest.approx(np.mean([split.test for split in several.report_.splits]))
    assert parts_of(several.best_.mix) == sorted(GOOD)
    rows = np.arange(PAIRS)
    fixed = planted.fit(parts=[(rows[:70], rows[70:])])
    assert (fixed.report_.dev_pairs, fixed.report_.test_pairs) == (70, 50)
    every = planted.fit(dev=None)
    assert parts_of(every.best_.mix) == sorted(GOOD)
    with pytest.raises(InputError, match="none are left to report"):
        every.report_  # noqa: B018 - computed when it is asked for


def test_the_first_look_keeps_the_best_prompts_with_their_poolings(planted):
    search = planted.fit(keep=2, look=40)
    assert set(search.kept_) == {"last in eol", "mean in eol", "mean in echo"}
    assert set(search.singles_) == set(POOLINGS)
    assert "mean" in planted.fit(["mean", *POOLINGS], keep=3).kept_


def test_the_first_look_counts_no_layer_that_costs_too_much(planted):
    assert set(planted.fit(keep=1).kept_) == {"last in eol", "mean in eol"}
    assert planted.fit(keep=1, max_cost=0.25).kept_ == ["mean in echo"]  # its first layer; the other good one is third


def test_the_first_look_is_of_the_forms_that_may_be_taken():
    far = Planted(shift=40.0)  # as they are, all texts point the same way
    assert far.fit(keep=1, less=(0,)).kept_ == ["last in eol", "mean in eol"]
    raw, centred, both = (far.fit(less=less).singles_["last in eol"][3] for less in ((None,), (0,), (None, 0)))
    assert centred > raw
    assert both == centred


def test_one_pass_serves_all_poolings_of_a_prompt(planted):
    planted.asked.clear()
    planted.fit(corpus=["left 0", "left 1", "right 2"], less=(0,))
    passes = [poolings for _, poolings in planted.asked if len(poolings) > 1 or "in eol" in poolings[0]]
    assert ("last in eol", "mean in eol") in passes
    of_corpus = [poolings for texts, poolings in planted.asked if texts == ("left 0", "left 1", "right 2")]
    assert sorted(of_corpus) == [("last in eol", "mean in eol"), ("mean",), ("mean in echo",)]


def test_a_single_pass_may_be_any_prompt_that_was_kept():
    many = Planted()
    random, prompts = np.random.default_rng(1), ["eol", "thinking", "knowledge", "summary", "topic", "event", "gist"]
    names = [f"last in {name}" for name in (*prompts, "follows", "keywords", "question")]
    hidden = names[-1]
    for name in names:
        noise = random.normal(size=(2 * PAIRS, LAYERS, WIDTH))
        many.views[name] = noise + (many.views["last in eol"][:, [3]] / 12 if name != hidden else 0.0)
    many.views[hidden][:, 1] = many.views["mean in echo"][:, 1]
    many.views[hidden][:, 2] = Planted().views["last in eol"][:, 3]
    search = many.fit(names, max_passes=1, max_cost=1.0)
    assert parts_of(search.best_.mix) == [(hidden, 1), (hidden, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, "keep 0 is not possible; give at least 1"),
        ({"most": 0}, "most 0"),
        ({"width": 0}, "width 0"),
        ({"bags": -1}, "bags -1"),
        ({"look": 0}, "look 0"),
        ({"max_cost": float("nan")}, "max_cost nan"),
        ({"max_passes": 0}, "max_passes 0"),
        ({"parts": []}, "No splits to choose"),
        ({"less": ()}, "less .* is not possible"),
        ({"less": (-1, 8)}, "less .* is not possible"),
        ({"less": (WIDTH,)}, "take away at most 15"),
    ],
)
def test_options_that_no_search_can_have_are_refused(planted, options, message):
    with pytest.raises(InputError, match=message):
        planted.fit(**options)


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

    assert "mean" not in constant.fit(keep=2, metric=closeness).kept_


def test_costs_without_a_limit_and_of_nothing(planted):
    assert str(planted.fit(max_cost=float("inf")).best_.mix) == str(planted.fit().best_.mix)
    nothing = planted.fit(max_cost=0)
    assert nothing.best_.mix.layers == (0,)
    assert {one.cost.passes for one in nothing.front_} == {0}
    with pytest.raises(InputError, match="none are left to report"):
        planted.fit(dev=None).front_  # noqa: B018 - computed when it is asked for


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold": [1.0] * PAIRS}, "constant scores"),
        ({"left": ["left 0"]}, "the lengths differ"),
        ({"left": ["left 0"] * PAIRS}, "too few"),
    ],
)
def test_bad_pairs_are_refused(planted, change, message):
    given = {"left": planted.left, "right": planted.right, "gold": planted.gold} | change
    with pytest.raises(InputError, match=message):
        ViewSearch(POOLINGS).fit(planted, given["left"], given["right"], given["gold"], prices=Prices(4))


def test_a_real_decoder_from_pairs_to_a_saved_model(tmp_path):
    encoder = LayerEncoder(save_decoder("llama", tmp_path / "llama"), device="cpu")
    model, pairs = LayerModel(encoder), some_pairs(60)
    poolings = view_poolings(model, ["mean"], encoder_prompts("eol", "twice"))
    assert poolings == ["mean", "last in eol", "mean in eol", "mean in twice"]
    views = encoder.encode_layers([*pairs.left, *pairs.right], "last in eol")[:, 2]
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (views[:60], views[60:]))
    graded = pairs_in_memory(pairs.left, pairs.right, (left * right).sum(1).tolist())
    with pytest.raises(InputError, match=r"less 32: views of 32 numbers .* take away at most 31"):
        search_views(model, graded, ViewSearch(poolings, less=(0, encoder.width)))
    result = search_views(model, graded, ViewSearch(poolings, less=(None, 0)), corpus=pairs.left, corpus_name="mine")
    assert result.verdict.is_gain
    assert ("last in eol", 2) in parts_of(result.verdict.use.mix)
    found = result.as_dict()
    assert found["best"]["cost"]["forward_passes"] >= 1
    assert found["protocol"]["seen_sentences"] == result.seen
    result.model.save(tmp_path / "best")
    again = LayerModel.load(tmp_path / "best", device="cpu")
    assert again.mix == result.model.mix
    assert np.allclose(again.encode(pairs.left[:5]), result.model.encode(pairs.left[:5]), atol=1e-5)
    (chosen, *_) = again.fitted_on
    assert chosen.what == "layers"


def encoder_prompts(*names):
    from layerwise.encoder import prompt_library

    return [prompt_library()[name] for name in names]


def test_prices_are_tokens_and_blocks(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    texts = ["old river", "rain"]
    prices = prices_of(encoder, ["mean", "mean in twice"], texts)
    plain, twice = 3.5, (4 + 2 + 2 + 2) / 2
    cost = prices.of({"mean": (2,), "cls": (1,), "mean in twice": (1, 4)})
    assert cost.blocks == (2, 4)
    assert cost.tokens == (plain, twice)
    assert cost.passes == pytest.approx(6 / DEPTH)
    assert cost.work == pytest.approx((2 * plain + 4 * twice) / (DEPTH * plain))


def test_only_what_was_asked_for_is_searched(planted):
    search = planted.fit(["last in eol"])
    assert set(search.singles_) == {"last in eol"}
    assert parts_of(search.best_.mix) == [("last in eol", 3)]
    assert search.last_.mix.pooling == "mean", "what it is compared with is the last layer by the model's own pooling"
    with pytest.raises(InputError, match="No poolings to search"):
        planted.fit([])


def test_a_second_fit_leaves_nothing_of_the_first():
    planted = Planted()
    search = planted.fit()
    first = (search.report_.gain, [str(one.choice.mix) for one in search.front_])
    planted.gold = -planted.gold
    search.fit(planted, planted.left, planted.right, planted.gold, prices=Prices(LAYERS - 1))
    assert (search.report_.gain, [str(one.choice.mix) for one in search.front_]) != first


def test_resamples_of_one_grade_choose_nothing():
    planted = Planted()
    planted.gold = np.zeros(PAIRS)
    planted.gold[[3, 70]] = 1.0
    rows = np.arange(PAIRS)
    search = planted.fit(parts=[(rows[:60], rows[60:])], bags=4, resamples=50)
    assert search.best_.mix.poolings


# The front of several splits


def test_the_front_of_several_splits_has_their_mean_scores(planted):
    options = {"bags": 0, "most": 2, "width": 2}
    search = planted.fit(splits=2, **options)
    costs, expected = (1 / (LAYERS - 1), 1 / 6, 1 / 2, 1, 2, None), []
    for cost in costs:
        alone = []
        for part in search.parts_:
            try:
                alone.append(planted.fit(parts=[part], max_cost=cost, **options).best_)
            except InputError:
                alone.append(None)
        if None not in alone:
            expected.append(np.mean([[best.dev, best.test] for best in alone], axis=0))
    assert len(search.front_) > 1
    for point in search.front_:
        assert any(np.allclose([point.choice.dev, point.choice.test], scores) for scores in expected)
    assert search.front_[-1].choice.dev == pytest.approx(max(dev for dev, _ in expected))
    assert search.front_[-1].choice == search.best_
    assert [point.choice.dev for point in search.front_] == sorted({point.choice.dev for point in search.front_})


# Stability


def test_halves_choose_what_a_search_by_brute_force_chooses(monkeypatch):
    monkeypatch.setattr("layerwise.search.view_stability._N_SPLITS", 3)
    views = Planted()
    search = views.fit(most=1, against=False)
    dev, _ = search.parts_[0]
    random, winners = np.random.default_rng(0), []
    single = views([*views.left, *views.right], POOLINGS)
    for _ in range(3):
        order = random.permutation(len(dev))
        for rows in (order[: len(dev) // 2], order[len(dev) // 2 : 2 * (len(dev) // 2)]):
            scores = {}
            for name in search.kept_:
                unit = single[name] / np.linalg.norm(single[name], axis=-1, keepdims=True)
                cosines = (unit[dev[rows]] * unit[PAIRS + dev[rows]]).sum(-1)
                layers = range(1 if name == "last in eol" else 0, LAYERS)  # its layer 0 is constant
                scores |= {f"{n} @ {name}": spearmanr(cosines[:, n], views.gold[dev[rows]])[0] for n in layers}
            winners.append(max(scores, key=scores.get))
    expected = {view: winners.count(view) / 6 for view in winners}
    assert search.stability_.views == pytest.approx(expected)
    assert search.stability_.agreement == np.mean([a == b for a, b in zip(winners[::2], winners[1::2], strict=True)])
    assert sum(search.stability_.poolings.values()) == pytest.approx(1)


def test_planted_views_are_stable_and_limits_hold_for_halves(planted):
    stability = planted.fit().stability_
    assert {*list(stability.views)[:2]} == {"3 @ last in eol", "1 @ mean in echo"}
    assert stability.views["3 @ last in eol"] == stability.poolings["last in eol"] == 1.0
    assert 0 < stability.agreement <= 1
    cheap = planted.fit(max_cost=1.5 / (LAYERS - 1)).stability_
    assert all(int(view.removeprefix("-").split(" @ ")[0]) <= 1 for view in cheap.views)
    centred = planted.fit(less=(None, 0)).stability_
    assert any(view.endswith(" less mean") for view in centred.views)
