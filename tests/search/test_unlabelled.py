"""Choosing without labels: dropout passes, pairs that are alike and unlike, their measures, and the guard."""

import logging
from itertools import combinations

import numpy as np
import pytest
import torch
import transformers as hf

from layerwise import LayerEncoder, LayerSearch
from layerwise.encoder import dropout_rate
from layerwise.encoder.dropout import dropout_on
from layerwise.errors import InputError, LayerwiseError, ModelError
from layerwise.search import Space, dropout_passes, layers_of
from layerwise.search.metrics import METRICS
from layerwise.search.problems import PairProblem
from layerwise.search.sources import PairGrams
from layerwise.search.spaces import membership
from layerwise.search.unlabelled import GuardedProblem, without_labels
from support.tiny import ARCHITECTURES, DEPTH, SENTENCES, VOCABULARY, WIDTH, tiny_tokenizer

WITH_DROPOUT = [name for name in ARCHITECTURES if name not in ("albert", "modernbert")]  # by their configs' defaults


@pytest.fixture(scope="module")
def encoder(tiny_bert) -> LayerEncoder:
    return LayerEncoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory) -> LayerEncoder:
    folder = tmp_path_factory.mktemp("without-dropout")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    hf.BertModel(hf.BertConfig(vocab_size=len(VOCABULARY), **sizes, **rates)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return LayerEncoder(folder, device="cpu")


# Dropout passes


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_passes_differ_by_seed_and_only_by_seed(tiny_folders, name):
    encoder = LayerEncoder(tiny_folders[name], device="cpu")
    plain = encoder.encode_layers(SENTENCES)
    one, again, other = (encoder.encode_layers(SENTENCES, dropout_seed=seed) for seed in (1, 1, 2))
    assert one.shape == plain.shape
    assert np.array_equal(one, again)
    for layer in range(DEPTH + 1):
        assert np.abs(one[:, layer] - other[:, layer]).max() > 1e-3, layer
        assert np.abs(one[:, layer] - plain[:, layer]).max() > 1e-3, layer
    assert np.array_equal(encoder.encode_layers(SENTENCES), plain), "dropout is off again"


def test_a_pass_is_what_the_model_gives_in_train_mode(encoder):
    """One sentence, so that the random numbers are drawn in the same order."""
    found = encoder.encode_layers(SENTENCES[:1], dropout_seed=7)
    tokens = encoder.tokenizer(SENTENCES[:1], return_tensors="pt")
    encoder.model.train()
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(7)
            states = encoder.model(**tokens, output_hidden_states=True).hidden_states
    finally:
        encoder.model.eval()
    assert np.abs(found[0] - torch.stack(states)[:, 0].mean(1).numpy()).max() < 1e-5


def test_all_poolings_come_from_the_same_pass(encoder):
    both = encoder.encode_layers(SENTENCES, ["mean", "cls"], dropout_seed=1)
    assert np.array_equal(both["mean"], encoder.encode_layers(SENTENCES, "mean", dropout_seed=1))
    assert np.array_equal(both["cls"], encoder.encode_layers(SENTENCES, "cls", dropout_seed=1))


def test_dropout_passes_take_each_sentence_once(encoder):
    one, other = dropout_passes(encoder, [*SENTENCES, *SENTENCES[:3]], ["mean", "max"])
    for side in (one, other):
        assert {name: array.shape for name, array in side.items()} == dict.fromkeys(("mean", "max"), (7, 5, WIDTH))
    assert not np.array_equal(one["mean"], other["mean"])
    again, _ = dropout_passes(encoder, SENTENCES, ["mean", "max"])
    assert np.array_equal(again["max"], one["max"])


def test_the_random_state_and_the_mode_are_left_alone(encoder):
    torch.manual_seed(123)
    before, modes = torch.get_rng_state(), [module.training for module in encoder.model.modules()]
    encoder.encode_layers(SENTENCES, dropout_seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in encoder.model.modules()] == modes == [False] * len(modes)


def test_the_random_state_and_the_mode_are_put_back_after_an_exception(encoder, monkeypatch):
    plain = encoder.encode_layers(SENTENCES)
    torch.manual_seed(123)
    before, seen = torch.get_rng_state(), []

    def fail(*_arguments):
        seen.append(encoder.model.training)
        torch.rand(3)
        raise ValueError("in the midst of it")

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "read", fail)
        with pytest.raises(ValueError, match="in the midst of it"):
            encoder.encode_layers(SENTENCES, dropout_seed=1)
    assert seen == [True]
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in encoder.model.modules())
    assert np.array_equal(encoder.encode_layers(SENTENCES), plain)


def test_modules_go_back_to_their_own_modes():
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.25)).eval()
    model[1].train()

    def stop():
        with dropout_on(model, 0):
            assert model[0].training
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stop()
    assert [module.training for module in model.modules()] == [False, False, True]
    assert dropout_rate(model) == 0.5


def test_dropout_views_are_not_cached(encoder, own_cache):
    plain = encoder.encode_layers(SENTENCES, cache=True)
    entries = sorted(own_cache.rglob("*"))
    dropped = encoder.encode_layers(SENTENCES, cache=True, dropout_seed=1)
    assert sorted(own_cache.rglob("*")) == entries
    assert not np.array_equal(dropped, plain)


def test_an_encoder_without_dropout_is_refused(without_dropout):
    with pytest.raises(ModelError, match=r"BertModel has no dropout: two passes would be equal; give pairs of text"):
        dropout_passes(without_dropout, SENTENCES, ["mean"])
    assert not without_dropout.model.training
    assert without_dropout.encode_layers(SENTENCES).shape == (7, 3, WIDTH)


@pytest.mark.parametrize("name", ["albert", "modernbert"])
def test_so_are_architectures_without_dropout_by_default(tiny_folders, name):
    with pytest.raises(ModelError, match="has no dropout"):
        LayerEncoder(tiny_folders[name], device="cpu").encode_layers(SENTENCES, dropout_seed=0)


def test_onnx_has_no_dropout(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu", backend="onnx")
    with pytest.raises(InputError, match="Dropout runs with the torch backend only, not with ONNX"):
        dropout_passes(encoder, SENTENCES, ["mean"])


# Pairs that are alike and unlike


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


def two_passes(size=30, layers=4, width=6, seed=0):
    random = np.random.default_rng(seed)
    views = random.normal(size=(size, layers, width))
    noise = np.resize([0.5, 0.9, 0.3, 0.6], layers)[:, None]
    return [views + noise * random.normal(size=views.shape) for _ in range(2)]


def alike_and_unlike(seed=0):
    left, right = two_passes(seed=seed)
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


def test_separation_and_guard_share_their_gram_matrices(guarded, monkeypatch):
    problem, _, _ = guarded
    for some in (problem, problem.pick(np.arange(70))):
        assert some.guard.source is some.separation.source
        assert some.guard.gold is some.separation.gold
    made, of = [], PairGrams.of
    monkeypatch.setattr(PairGrams, "of", lambda *views, **options: made.append(of(*views, **options)) or made[-1])
    left, right = two_passes()
    LayerSearch(dev=None).fit({"mean": left, "cls": left}, {"mean": right, "cls": right})
    assert len(made) == 2, "once for each token pooling"


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
    unguarded = LayerSearch(dev=None, metric="separation").fit(left, right)
    assert unguarded.best_.layers == (0,)
    guarded = LayerSearch(dev=None).fit(left, right)
    assert 0 not in guarded.best_.layers
    assert np.isnan(guarded.table_.score_of((0,)))
    by_uniformity = LayerSearch(dev=None, metric="align-uniform").fit(left, right)
    assert 0 not in by_uniformity.best_.layers


def test_the_guard_lets_the_best_separation_through_where_it_is_no_worse():
    left, right = two_passes(60, seed=2)
    for side in (left, right):
        side[:, 3] += 2  # a last layer that is worse in both
    guarded, unguarded = (
        LayerSearch(dev=None).fit(left, right),
        LayerSearch(dev=None, metric="separation").fit(left, right),
    )
    assert guarded.best_ == unguarded.best_
    assert guarded.best_.dev > guarded.last_.dev


# LayerSearch without scores


def test_a_search_without_scores():
    left, right = two_passes(60, seed=3)
    search = LayerSearch(dev=None, resamples=50).fit(left, right)
    assert search.metric_name_ == "guarded-separation"
    a, b, labels = without_labels({"mean": left}, {"mean": right}, seed=0)
    expected = naive_guarded(a["mean"], b["mean"], labels, np.arange(360))
    assert {found.layers: found.score for found in search.table_} == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert search.best_.layers == max((c for c in SETS if not np.isnan(expected[c])), key=expected.get)
    assert search.best_.dev == pytest.approx(expected[search.best_.layers], rel=1e-6)
    assert search.last_.dev == pytest.approx(expected[(3,)], rel=1e-6)
    assert search.best_.test is None
    assert {found.layers for found in search.front_} <= {c for c in SETS if not np.isnan(expected[c])}
    assert 0 <= search.stability_.agreement <= 1
    with pytest.raises(InputError, match="none are left to report: give dev"):
        _ = search.report_
    assert search.transform(left).shape == (60, 6)


def test_a_search_without_scores_over_poolings():
    bad, good = two_passes(60, seed=4), two_passes(60, seed=4)
    bad[1] = bad[1][::-1]
    search = LayerSearch(dev=None).fit({"mean": bad[0], "max": good[0]}, {"mean": bad[1], "max": good[1]})
    assert search.best_.pooling == "max"
    assert search.best_.layers == LayerSearch(dev=None).fit(*good).best_.layers
    assert len(search.table_) == 30


def test_a_search_without_scores_by_dropout(encoder):
    passes = dropout_passes(encoder, SENTENCES, ["mean", "max"])
    one, other = (LayerSearch(dev=None, seed=3).fit(*passes) for _ in range(2))
    assert one.best_ == other.best_
    assert one.best_.dev >= one.last_.dev


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
        LayerSearch(**arguments).fit(*change(*two_passes()))


def test_a_space_in_which_the_guard_refuses_all_says_so():
    """The pairs are not equally similar there: the sets are worse than the last layer."""
    left, right = meaningless_first_layer()
    with pytest.raises(InputError, match=r"(?i)last layer|guard|uniform"):
        LayerSearch(dev=None, space="0").fit(left, right)


@pytest.mark.parametrize("size", [30, 99, 100, 150])
def test_only_what_was_given_counts_as_pairs_that_choose(size, caplog):
    """Five unlike pairs are drawn for each alike one; nobody gave them."""
    with caplog.at_level(logging.WARNING, logger="layerwise"):
        search = LayerSearch(dev=None).fit(*two_passes(size))
    told = [f"{size} pairs choose among 15 sets"] * (size < 100)
    assert [message.split(":")[0] for message in caplog.messages] == told
    assert [warning.split(":")[0] for warning in [search.few_pairs_] if warning] == told
