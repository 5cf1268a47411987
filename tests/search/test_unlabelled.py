"""Choosing without labels: pairs that are alike and unlike, what they measure, the guard, and who must agree."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from layerwise.errors import InputError, LayerwiseError, ModelError
from layerwise.mixes import Mean
from layerwise.model import LayerModel
from layerwise.search import ALIKE, HITS, KNOWN_CRITERIA, Criteria, Proposal, Search, Space, as_metric, layers_of
from layerwise.search.alike import alike_and_unlike as pairs_of_text
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.metrics import METRICS
from layerwise.search.problems import PairProblem
from layerwise.search.sources import PairGrams
from layerwise.search.spaces import membership
from layerwise.search.unlabelled import (
    CRITERIA,
    DropoutViews,
    GuardedProblem,
    dropout_passes,
    guarded_separation,
    hit_rate,
    sample_of,
    two_passes,
    without_labels,
)
from support.text_pairs import some_pairs
from support.tiny import DEPTH, SENTENCES, save_decoder

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MODELS = (
    "views-all-MiniLM-L6-v2",
    "views-dev-wiki-mlm-12x384",
    "views-all-mpnet-base-v2",
    "views-dev-SmolLM2-135M-Instruct",
    "views-dev-trained-mask",
    "views-dev-trained-nli",
)
LAST = {"deletion": 4.0, "neighbours": 1.0, "repetition": 5.0}


@pytest.fixture(scope="module")
def texts():
    pairs = some_pairs(40)
    return [*pairs.left, *pairs.right]


# How often a choice without labels was better


def measured(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def hits(gains):
    """Choices, better ones, worse ones and the most points lost; a difference below 0.05 points is none."""
    return len(gains), sum(x > 0.05 for x in gains), sum(x < -0.05 for x in gains), round(max(0.0, -min(gains)), 1)


@pytest.mark.parametrize("criterion", ["repetition", "deletion", "neighbours", "dropout"])
def test_the_hit_rate_of_a_criterion_is_the_measured_one(criterion):
    gains = []
    for rows in (measured(name)["unlabelled"] for name in MODELS):
        chosen = [rows.get(f"{criterion}, {what}") for what in ("layers", "views")]
        gains += [100 * (row["sts"] - rows["last layer"]["sts"]) for row in chosen if row]
    assert HITS[criterion] == hits(gains)


def test_the_hit_rate_of_all_criteria_is_the_measured_one():
    rows = [measured(name)["unlabelled"] for name in MODELS]
    gains = [100 * (row["agreement"]["sts"] - row["last layer"]["sts"]) for row in rows if "agreement" in row]
    decoder = measured("views-rule-SmolLM2-135M-Instruct")["given"]
    rule, last = (np.mean([part["test"] for part in decoder[name].values()]) for name in ("given", "last layer"))
    gains.append(100 * (rule - last))
    assert HITS["all"] == hits(gains)
    assert sorted(round(gain, 1) for gain in gains if gain > 0.05) == [5.4, 23.7]


def test_hit_rates_in_words():
    assert hit_rate("deletion") == (
        "Of 12 choices by deletion that were scored afterwards, 6 were better than the last layer and 4 worse, by 4.5 "
        "points at most"
    )
    assert hit_rate("all").endswith("2 were better than the last layer and none worse")
    assert hit_rate("pairs") == "How often choices by pairs are better was not measured"
    assert hit_rate("") == ""


@pytest.mark.parametrize("criterion", KNOWN_CRITERIA)
def test_a_verdict_without_labels_says_that_no_score_stands_behind_it(tiny_layers, texts, criterion):
    search = Search(criterion=criterion, n_bootstraps=0, max_views=2, beam_width=2)
    rows = list(zip(texts[:40], texts[40:], strict=True)) if criterion == "pairs" else texts
    selection = search.fit(tiny_layers, rows).selection_
    said = str(search.verdict_)
    assert "No score stands behind this: nothing was graded." in said
    assert hit_rate(criterion) in said
    assert said.startswith("Keep the last layer") == (selection.model().mix == Mean.of(DEPTH))
    assert selection.gain is None
    facts = selection.facts
    assert (facts.verdict.has_evidence, facts.verdict.reliable_gain, facts.gain, facts.front) == (
        False,
        False,
        None,
        (),
    )
    assert facts.protocol.reporting == 0
    assert said in selection.how
    assert f"by {criterion}" in selection.records[0].source


# Pairs that are alike and unlike, from text


def test_changed_words_are_those_of_the_text(texts):
    for text, longer in zip(*ALIKE["repetition"](texts, np.random.default_rng(0)), strict=True):
        words = longer.split()
        assert [word for n, word in enumerate(words) if not n or words[n - 1] != word] == _without_doubles(text)
        assert len(words) > len(text.split())
    for text, shorter in zip(*ALIKE["deletion"](texts, np.random.default_rng(0)), strict=True):
        rest = iter(text.split())
        assert all(word in rest for word in shorter.split())  # a subsequence
        assert 0 < len(shorter.split()) < len(text.split())


def _without_doubles(text):
    words = text.split()
    return [word for n, word in enumerate(words) if not n or words[n - 1] != word]


def test_one_word_cannot_be_changed_and_neighbours_follow_each_other():
    random = np.random.default_rng(0)
    assert ALIKE["deletion"](["one", "two words"], random)[0] == ["two words"]
    assert ALIKE["neighbours"](["a", "b", "c"], random) == (["a", "b"], ["b", "c"])


def test_a_sample_is_spread_evenly_but_neighbours_stay_together():
    lines = [f"line {n}" for n in range(2000)]
    assert sample_of(lines, "neighbours") == lines[:601]
    spread = sample_of(lines, "deletion")
    assert (len(spread), spread[0], spread[-1]) == (600, "line 0", "line 1999")
    assert sample_of(lines[:10], "deletion") == lines[:10]


def test_unlike_pairs_are_of_other_rows(texts):
    left, right, labels = pairs_of_text("deletion", texts, seed=3)
    size = int(sum(labels))
    assert labels == [1.0] * size + [0.0] * 5 * size
    of = dict(zip(left[:size], right[:size], strict=True))
    assert not any(of[one] == other for one, other in zip(left[size:], right[size:], strict=True))
    assert pairs_of_text("deletion", texts, seed=3) == (left, right, labels)
    with pytest.raises(InputError, match="1 sentences make 1 pairs by repetition, too few"):
        pairs_of_text("repetition", ["two words"])
    with pytest.raises(InputError, match="Unknown criterion 'magic'"):
        pairs_of_text("magic", texts)


# Pairs that are alike and unlike, of views


def numbered(size):
    """Views of which the number tells the row."""
    return np.arange(size, dtype=float)[:, None, None] * np.ones((1, 2, 3))


@pytest.mark.parametrize("size", [5, 6, 40])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_is_unlike_itself(size, seed):
    left, right, labels = without_labels({"mean": numbered(size)}, {"mean": numbered(size)}, seed=seed)
    first, second = left["mean"][:, 0, 0], right["mean"][:, 0, 0]
    assert np.array_equal(first == second, labels == 1), "alike are rows with themselves, unlike all others"
    assert np.array_equal(first[:size], np.arange(size))
    assert labels.sum() == size
    assert len(labels) == 6 * size
    assert np.bincount(first.astype(int)).tolist() == [6] * size


def test_unlike_pairs_are_drawn_by_the_seed_and_the_same_for_all_poolings():
    views = {"mean": numbered(30), "cls": numbered(30) + 100}
    one, again, other = (without_labels(views, views, seed=seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(one["mean"], again["mean"])
    assert not np.array_equal(one["mean"], other["mean"])
    assert np.array_equal(one["mean"] + 100, one["cls"])


def test_tensors_are_paired_too():
    left, right, labels = without_labels({"mean": torch.from_numpy(numbered(9))}, {"mean": numbered(9)})
    assert isinstance(left["mean"], torch.Tensor)
    assert np.array_equal(left["mean"][:, 0, 0].numpy() == right["mean"][:, 0, 0], labels == 1)


def test_a_sentence_is_not_unlike_itself_among_neighbours():
    """Lines 0 to 8 with lines 1 to 9: row i's left is row i - 1's right."""
    left, right, labels = without_labels({"mean": numbered(10)[:-1]}, {"mean": numbered(10)[1:]})
    unlike = labels == 0
    same = (left["mean"] == right["mean"]).all((1, 2)) & unlike
    assert not same.any(), f"{same.sum()} of {unlike.sum()} unlike pairs are the same sentence twice"


# Measures


def cosines(left, right, layers):
    a, b = (side[:, list(layers)].mean(1) for side in (left, right))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def naive_separation(similarities, labels):
    close, far = similarities[labels == 1], similarities[labels == 0]
    return (close.mean() - far.mean()) / np.sqrt((close.var(ddof=1) + far.var(ddof=1)) / 2)


def naive_align_uniform(a, b, labels):
    """Wang and Isola (2020), with alpha = 2 and t = 2, on unit vectors."""
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    squared = np.square(a - b).sum(1)
    return -(squared[labels == 1].mean() + np.log(np.exp(-2 * squared[labels == 0]).mean()))


def noisy_sides(size=30, layers=4, width=6, seed=0):
    random = np.random.default_rng(seed)
    views = random.normal(size=(size, layers, width))
    noise = np.resize([0.5, 0.9, 0.3, 0.6], layers)[:, None]
    return [views + noise * random.normal(size=views.shape) for _ in range(2)]


def alike_and_unlike(seed=0):
    left, right = noisy_sides(seed=seed)
    left, right, labels = without_labels({"mean": left}, {"mean": right}, seed=seed)
    return left["mean"], right["mean"], labels


def problem_of(left, right, labels, metric):
    return PairProblem(PairGrams.of(left, right), labels, METRICS[metric])


SETS = [chosen for size in range(1, 5) for chosen in combinations(range(4), size)]


@pytest.mark.parametrize("seed", range(3))
def test_separation_is_the_distance_in_deviations(seed):
    left, right, labels = alike_and_unlike(seed)
    masks, scores = problem_of(left, right, labels, "separation").scan(Space())
    expected = {chosen: naive_separation(cosines(left, right, chosen), labels) for chosen in SETS}
    assert dict(zip(map(layers_of, masks.tolist()), scores, strict=True)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_alignment_and_uniformity_as_published(seed):
    left, right, labels = alike_and_unlike(seed)
    masks, scores = problem_of(left, right, labels, "align-uniform").scan(Space())
    mixed = {chosen: [side[:, list(chosen)].mean(1) for side in (left, right)] for chosen in SETS}
    expected = {chosen: naive_align_uniform(*sides, labels) for chosen, sides in mixed.items()}
    assert dict(zip(map(layers_of, masks.tolist()), scores, strict=True)) == pytest.approx(expected, rel=1e-6)


def test_separation_of_similarities_that_are_all_equal_is_no_number():
    ones = np.ones((12, 2, 3))
    assert np.isnan(problem_of(ones, ones, np.arange(12) % 2, "separation").scores(np.eye(2))).all()


# The guard


def naive_guarded(left, right, labels, rows):
    """Set -> separation, or NaN where alignment and uniformity are worse than the last layer's."""
    left, right, labels = left[rows], right[rows], labels[rows]
    guards = {c: naive_align_uniform(*(side[:, list(c)].mean(1) for side in (left, right)), labels) for c in SETS}
    bar = guards[(3,)] - 1e-9
    return {c: naive_separation(cosines(left, right, c), labels) if guards[c] >= bar else np.nan for c in SETS}


@pytest.fixture
def guarded():
    """A problem, its parts, and its sets as rows of weights."""
    parts = alike_and_unlike(seed=5)
    problem = GuardedProblem(problem_of(*parts, "separation"))
    return problem, parts, np.array([[float(layer in chosen) for layer in range(4)] for chosen in SETS])


def test_a_guarded_scan_gives_the_separation_or_nothing(guarded):
    problem, parts, rows = guarded
    expected = naive_guarded(*parts, np.arange(len(problem)))
    assert 0 < np.isnan(list(expected.values())).sum() < len(SETS), "some are refused, some not"
    masks, scores = problem.scan(Space())
    found = dict(zip(map(layers_of, masks.tolist()), scores, strict=True))
    assert found == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert problem.scores(rows) == pytest.approx(list(expected.values()), rel=1e-6, nan_ok=True)
    assert problem.scores(membership(masks, 4)) == pytest.approx(scores, rel=1e-6, nan_ok=True)
    assert (problem.layers, len(problem)) == (4, 180)
    assert not np.isnan(found[(3,)]), "the last layer is never refused"


def test_a_guard_on_some_pairs_has_its_bar_there(guarded):
    problem, parts, rows = guarded
    picked = np.random.default_rng(0).permutation(180)[:70]
    some = problem.pick(picked)
    assert len(some) == 70
    expected = naive_guarded(*parts, picked)
    assert some.scores(rows) == pytest.approx(list(expected.values()), rel=1e-6, nan_ok=True)
    masks, scores = some.scan(Space(largest=2))
    found = dict(zip(map(layers_of, masks.tolist()), scores, strict=True))
    assert found == pytest.approx({c: expected[c] for c in SETS if len(c) < 3}, rel=1e-6, nan_ok=True)


def test_a_guard_on_resamples_has_its_bar_in_each(guarded):
    problem, parts, rows = guarded
    random = np.random.default_rng(1)
    draws = [random.integers(180, size=180) for _ in range(5)] + [random.permutation(180)[:90]]
    expected = [list(naive_guarded(*parts, draw).values()) for draw in draws]
    found = problem.redrawn(rows, draws)
    assert found.shape == (6, len(SETS))
    assert found == pytest.approx(np.array(expected), rel=1e-6, nan_ok=True)
    assert problem.redrawn(rows[:3], draws) == pytest.approx(np.array(expected)[:, :3], rel=1e-6, nan_ok=True)


def test_a_guarded_scan_walks_through_the_space_once(guarded, monkeypatch):
    problem, _, _ = guarded
    swept, sweep = [], PairGrams.sweep
    monkeypatch.setattr(PairGrams, "sweep", lambda source, space: swept.append(space) or sweep(source, space))
    counted = []
    problem.scan(Space(), progress=counted.append)
    assert (len(swept), sum(counted)) == (1, 15)


def test_a_guard_refuses_pairs_of_one_kind(guarded):
    problem, _, rows = guarded
    with pytest.raises(InputError, match="all have the score 1"):
        problem.pick(np.arange(20)).check()
    assert np.isnan(problem.redrawn(rows, [np.arange(20)])).all()


def meaningless_first_layer(size=60, width=64, seed=0):
    """Layer 0: all sentences alike but for a trifle, which dropout leaves. Layers 1 and 2 (the last) spread them."""
    random = np.random.default_rng(seed)
    own = random.normal(size=(size, 3, width)) / np.sqrt(width)
    own[:, 0] = 10 * np.eye(width)[0] + own[:, 0] / np.linalg.norm(own[:, 0], axis=1, keepdims=True)
    noise = np.array([0.001, 0.6, 0.5])[:, None] / np.sqrt(width)
    return [own + noise * random.normal(size=own.shape) for _ in range(2)]


def test_the_guard_keeps_a_meaningless_layer_from_being_chosen():
    left, right = meaningless_first_layer()
    unguarded = Search(metric="separation").fit_views(left, right).selection_
    assert unguarded.chosen.layers == (0,)
    guarded = Search().fit_views(left, right).selection_
    assert 0 not in guarded.chosen.layers
    assert np.isnan(guarded.table.score_of((0,)))
    by_uniformity = Search(metric="align-uniform").fit_views(left, right).selection_
    assert 0 not in by_uniformity.chosen.layers


def test_the_guard_lets_the_best_separation_through_where_it_is_no_worse():
    left, right = noisy_sides(60, seed=2)
    for side in (left, right):
        side[:, 3] += 2  # a last layer that is worse in both
    guarded, unguarded = (
        Search().fit_views(left, right).selection_,
        Search(metric="separation").fit_views(left, right).selection_,
    )
    assert guarded.chosen == unguarded.chosen
    assert guarded.chosen.dev > guarded.last.dev


# A search without scores


def test_a_search_without_scores():
    left, right = noisy_sides(60, seed=3)
    selection = Search().fit_views(left, right).selection_
    assert selection.metric == "guarded-separation"
    a, b, labels = without_labels({"mean": left}, {"mean": right}, seed=0)
    expected = naive_guarded(a["mean"], b["mean"], labels, np.arange(360))
    assert {row.layers: row.dev for row in selection.table} == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert selection.chosen.layers == max((c for c in SETS if not np.isnan(expected[c])), key=expected.get)
    assert selection.chosen.dev == pytest.approx(expected[selection.chosen.layers], rel=1e-6)
    assert selection.last.dev == pytest.approx(expected[(3,)], rel=1e-6)
    assert selection.chosen.test is None
    assert {row.layers for row in selection.front} <= {c for c in SETS if not np.isnan(expected[c])}
    assert 0 <= selection.stability.agreement <= 1
    assert selection.gain is None


def test_a_search_without_scores_over_poolings():
    bad, good = noisy_sides(60, seed=4), noisy_sides(60, seed=4)
    bad[1] = bad[1][::-1]
    selection = Search().fit_views({"mean": bad[0], "max": good[0]}, {"mean": bad[1], "max": good[1]}).selection_
    assert selection.chosen.pooling == "max"
    assert selection.chosen.layers == Search().fit_views(*good).selection_.chosen.layers
    assert len(selection.table) == 30


def test_a_search_by_dropout_is_one_of_its_two_passes(tiny_layers):
    passes = dropout_passes(tiny_layers.encoder, SENTENCES, ["mean", "max"])
    expected = Search(seed=3).fit_views(*passes).selection_
    selection = Search(criterion="dropout", poolings=["mean", "max"], seed=3).fit(tiny_layers, SENTENCES).selection_
    assert selection.chosen.mix == expected.chosen.mix
    assert selection.chosen.dev == expected.chosen.dev >= selection.last.dev


BAD = {
    "lengths": (lambda a, b: (a, b[:-1]), {}, "The two sides' lengths differ: 29, 30"),
    "too few": (lambda a, b: (a[:4], b[:4]), {}, "4 sentences are too few to choose layers by; give at least 5"),
    "poolings": (lambda a, b: ({"mean": a}, {"cls": b}), {}, "poolings differ: mean and cls"),
    "layers": (lambda a, b: (a, b[:, :2]), {}, "two sides' views differ"),
    "metric": (lambda a, b: (a, b), {"metric": "seperation"}, "Did you mean 'separation'"),
    "space": (lambda a, b: (a, b), {"space": "at least 5"}, "No set of layers 0 to 3 fits the space"),
}


@pytest.mark.parametrize(("change", "arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(change, arguments, message):
    with pytest.raises(LayerwiseError, match=message):
        Search(**arguments).fit_views(*change(*noisy_sides()))


def test_a_space_in_which_the_guard_refuses_all_says_so():
    """The pairs are not equally similar there: the sets are worse than the last layer."""
    left, right = meaningless_first_layer()
    with pytest.raises(InputError, match="as good as the last layer by alignment and uniformity"):
        Search(space="0").fit_views(left, right)


@pytest.mark.parametrize("size", [99, 100])
def test_only_what_was_given_counts_as_pairs_that_choose(size):
    """Five unlike pairs are drawn for each alike one; nobody gave them."""
    selection = Search().fit_views(*noisy_sides(size)).selection_
    assert selection.n_choosing == selection.labelled == size
    expected = [f"{size} pairs choose among 15 sets"] * (size < 100)
    assert [warning.split(":")[0] for warning in selection.warnings] == expected


# Criteria that must agree


@pytest.mark.parametrize(
    ("separations", "agreed"),
    [
        ((4.1, 1.1, 5.1), True),
        ((4.1, 1.1, 5.0), True),
        ((4.1, 1.0, 5.0), False),  # better by one of three only
        ((4.9, 1.9, 4.9), False),  # worse by one
        ((4.0, 1.0, 5.0), False),
    ],
)
def test_a_set_is_agreed_on_where_none_has_it_worse_and_most_better(separations, agreed):
    proposal = Proposal("deletion", Mean.of(1), dict(zip(LAST, separations, strict=True)))
    assert proposal.is_agreed(LAST) == agreed


def test_where_the_last_layer_keeps_nothing_apart_worse_is_worse_and_better_better():
    last = {"repetition": -0.1, "deletion": 0.0}
    assert not Proposal("deletion", Mean.of(1), {"repetition": -3.0, "deletion": 0.0}).is_agreed(last)
    assert Proposal("deletion", Mean.of(1), {"repetition": 0.4, "deletion": 0.3}).is_agreed(last)


def test_of_several_agreed_proposals_the_best_mean_gain_is_taken():
    proposals = [
        Proposal("deletion", Mean.of(1), {"deletion": 4.4, "neighbours": 1.1, "repetition": 5.0}),
        Proposal("neighbours", Mean.of(2), {"deletion": 4.4, "neighbours": 1.3, "repetition": 5.0}),
        Proposal("repetition", Mean.of(3), {"deletion": 3.0, "neighbours": 2.0, "repetition": 9.0}),
    ]
    assert Criteria("all", tuple(proposals), LAST).agreed is proposals[1]
    assert Criteria("all", tuple(proposals[2:]), LAST).agreed is None


def test_a_real_model_by_all_criteria(tiny_layers, texts, tmp_path):
    search = Search(criterion="all", poolings="all", prompts="means", max_views=2, beam_width=2, n_bootstraps=0)
    selection = search.fit(tiny_layers, texts).selection_
    criteria = selection.criteria
    assert [one.criterion for one in criteria.proposals] == list(CRITERIA) == ["deletion", "neighbours", "repetition"]
    for one in criteria.proposals:  # each criterion's own choice is best by itself
        assert one.separations[one.criterion] >= criteria.last[one.criterion] - 1e-6
    chosen = selection.model()
    if criteria.agreed is None:
        assert chosen.mix == Mean.of(DEPTH)
    else:
        assert chosen.mix == criteria.agreed.mix == selection.chosen.mix
        assert chosen.fitted_on[-1].seen(texts).all()
    chosen.save(tmp_path / "chosen")
    assert np.allclose(LayerModel.load(tmp_path / "chosen").encode(texts[:3]), chosen.encode(texts[:3]), atol=1e-6)


def test_what_is_removed_is_recorded_with_the_model(tiny_layers, texts):
    selection = Search(criterion="repetition", remove=(0,), n_bootstraps=0).fit(tiny_layers, texts).selection_
    assert selection.chosen.mix.fitted is not None
    assert {record.what for record in selection.records} == {"layers", "means of views"}


# Views by dropout


def test_dropout_gives_each_text_two_passes(tiny_layers, texts):
    encode = DropoutViews(tiny_layers.encoder)
    left, right, labels = two_passes(texts[:8] * 2, seed=1)
    size = int(sum(labels))
    assert size == len({*texts[:8]})
    assert [text.split(" ", 1)[1] for text in left[:size]] == [text.split(" ", 1)[1] for text in right[:size]]
    assert not {*zip(left[size:], right[size:], strict=True)} & {*zip(left[:size], right[:size], strict=True)}
    inputs = [*left[:size], *right[:size]]
    views = encode(inputs, ["mean", "mask in means"])
    by_encoder = encode.encoder.encode_layers(texts[:8], "mask in means", dropout_seed=1)
    assert np.array_equal(views["mask in means"][:size], by_encoder)
    assert np.abs(views["mask in means"][:size, 4] - views["mask in means"][size:, 4]).max() > 1e-3
    assert np.array_equal(encode(inputs, ["mask in means"])["mask in means"], views["mask in means"])


@pytest.mark.slow
def test_dropout_chooses_views_no_worse_than_the_last_layer(tiny_layers, texts):
    search = Search(criterion="dropout", poolings=["mean", "cls"], prompts="means", max_views=2, beam_width=2)
    selection = search.fit(tiny_layers, texts).selection_
    (chosen,) = selection.criteria.proposals
    assert chosen.separations["dropout"] >= selection.criteria.last["dropout"]
    encode, pairs = DropoutViews(tiny_layers.encoder), two_passes(texts, seed=0)
    guard = GradedPairs.of(*pairs, metric=as_metric("align-uniform"), encode=encode)
    rows = np.arange(len(guard))
    assert guard.score(chosen.mix, rows) >= guard.score(selection.last.mix, rows) - 1e-5
    separation = GradedPairs.of(*pairs, metric=as_metric("separation"), encode=encode)
    assert separation.score(chosen.mix, rows) == pytest.approx(chosen.separations["dropout"], rel=1e-4)


def test_a_set_below_the_guard_has_no_score():
    labels, similarities = np.array([1.0, 1.0, 0.0, 0.0]), torch.tensor([[0.9, 0.8, 0.1, 0.3], [0.9, 0.8, 0.7, 0.6]])
    guard = as_metric("align-uniform")(labels)(similarities)
    assert guard[0] > guard[1]
    first, second = guarded_separation(float(guard.mean()))(labels)(similarities).tolist()
    assert first == pytest.approx(float(as_metric("separation")(labels)(similarities)[0]))
    assert np.isnan(second)


@pytest.mark.parametrize("prompts", [None, "eol"])
def test_a_decoder_without_dropout_is_refused(texts, tmp_path, prompts):
    decoder = LayerModel.load(save_decoder("llama", tmp_path / "llama"), device="cpu")
    with pytest.raises(ModelError, match="LlamaModel has no dropout: two passes would be equal"):
        Search(criterion="dropout", prompts=prompts).fit(decoder, texts)
