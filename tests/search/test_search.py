"""The estimator: what it takes, what it refuses, what it leaves as it was, and the model around the mix."""

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.metrics import average_precision_score

from layerwise import Head, LayerModel, Mean, Search
from layerwise.data import Task, pairs_in_memory
from layerwise.errors import InputError, LayerwiseError, MixError
from layerwise.postprocess import ENCODER, FittedOn
from layerwise.search import Space, make_problems
from support.kind_rows import rows_of
from support.pair_files import PAIRS, made_up_sentences, write
from support.search_views import brute_force, cosine, graded_pairs, noise_pairs, planted_layer
from support.tiny import SENTENCES, WIDTH, WORDS

LEFT, RIGHT = made_up_sentences()
GOLD = (np.random.default_rng(0).permutation(PAIRS) / PAIRS).tolist()
ROWS = [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in zip(LEFT, RIGHT, GOLD, strict=True)]
CLASSES = ["ab"[number % 2] for number in range(PAIRS)]
PROMPTS = {"query": f"{WORDS[0]} {WORDS[1]} ", "document": f"{WORDS[2]} ", "topic": f"{WORDS[3]} {WORDS[4]} "}


def select(left, right, gold, **options):
    return Search(**{"n_resamples": 50, **options}).fit_views(left, right, gold).selection_


def no_model():
    raise AssertionError("the model is loaded before the data and options are checked")


def views_of(model, *sides, prefix=""):
    return [model.encoder.encode_layers([prefix + text for text in side]) for side in sides]


# What it takes


@pytest.fixture(scope="module")
def of_tuples(tiny_layers):
    return Search(n_resamples=20).fit(tiny_layers, list(zip(LEFT, RIGHT, GOLD, strict=True))).selection_


@pytest.mark.parametrize(
    "of_rows",
    [
        pd.DataFrame,
        pl.DataFrame,
        datasets.Dataset.from_list,
        list,
        lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
        lambda _: pairs_in_memory(LEFT, RIGHT, GOLD, source="memory"),
    ],
    ids=["pandas", "polars", "datasets", "dicts", "columns", "rows"],
)
def test_rows_in_memory_of_any_kind_are_the_same(of_rows, tiny_layers, of_tuples):
    selection = Search(n_resamples=20).fit(tiny_layers, of_rows(ROWS)).selection_
    assert selection.chosen == of_tuples.chosen
    assert selection.gain == of_tuples.gain


@pytest.mark.parametrize("as_data", [str, lambda path: path, lambda path: Task(name="t", kind="sts", file=str(path))])
def test_a_file_and_a_task_are_the_same_as_their_rows(as_data, tiny_bert, of_tuples, tmp_path):
    path = write(tmp_path / "pairs.csv", ROWS)
    loaded = lambda: LayerModel.load(tiny_bert, device="cpu")  # noqa: E731
    assert Search(n_resamples=20).fit(loaded, as_data(path)).selection_.chosen == of_tuples.chosen


def test_a_searched_model_scores_as_its_embeddings(tiny_layers):
    selection = Search(dev="all").fit(tiny_layers, ROWS).selection_
    embeddings = [selection.model().encode(side).astype(np.float64) for side in (LEFT, RIGHT)]
    assert selection.chosen.dev == pytest.approx(spearmanr(cosine(*embeddings), GOLD).statistic, abs=1e-3)


def test_several_tasks_are_searched_by_their_weighted_mean(tiny_layers, tmp_path):
    other = [row | {"score": score} for row, score in zip(ROWS[::-1], GOLD, strict=True)]
    paths = [str(write(tmp_path / name, rows)) for name, rows in (("first.csv", ROWS), ("second.csv", other))]
    search = Search(weights=(3, 1), space="up to 2", n_resamples=20)
    selection = search.fit(tiny_layers, paths).selection_
    alone = [Search(space="up to 2", n_resamples=20).fit(tiny_layers, path).selection_ for path in paths]
    assert [(task.task, task.weight) for task in selection.tasks.tasks] == [("first", 0.75), ("second", 0.25)]
    for scored in selection.table:
        parts = [one.table.score_of(scored.layers) for one in alone]
        assert scored.dev == pytest.approx(0.75 * parts[0] + 0.25 * parts[1], abs=1e-9)
    assert selection.facts.tasks == selection.tasks
    names = [choice.name for choice in selection.tasks.choices]
    assert names == ["first", "second", "all tasks", "last layer"]
    first, second, joint, _ = selection.tasks.choices
    assert [first.mix, second.mix] == [str(one.chosen.mix) for one in alone]
    assert joint.mean_regret == pytest.approx(0.75 * joint.regrets[0] + 0.25 * joint.regrets[1])


def test_plain_texts_are_searched_without_labels(tiny_layers):
    search = Search(n_bootstraps=0, max_views=1, beam_width=1)
    selection = search.fit(tiny_layers, [*LEFT, *RIGHT]).selection_
    assert selection.gain is None
    assert not selection.verdict.has_evidence
    assert "No score stands behind this" in str(selection.verdict)
    assert selection.criteria.name == "all"


def test_a_metric_of_queries_ranks_the_other_rows_passages(tiny_layers):
    selection = Search(metric="mrr@10", n_resamples=20).fit(tiny_layers, ROWS).selection_
    assert selection.unit == "queries"
    relevant = [number for number, score in enumerate(GOLD) if score > 0]
    left, right = views_of(tiny_layers, [LEFT[number] for number in relevant], RIGHT)
    same = Search(metric="mrr@10", n_resamples=20).fit_queries(left, right, relevant).selection_
    assert same.unit == "queries"
    assert (selection.chosen.dev, selection.gain.mean) == pytest.approx((same.chosen.dev, same.gain.mean))


def test_classes_are_searched_by_nested_folds(tiny_layers):
    rows = rows_of("classification", LEFT, labels=CLASSES)
    search = Search(space="up to 1", splits=2, n_resamples=20)
    before = search.get_params()
    selection = search.fit(tiny_layers, rows).selection_
    assert (selection.metric, selection.unit, len(selection.splits)) == ("accuracy", "rows", 2)
    assert selection.gain.low <= selection.gain.mean <= selection.gain.high
    views = views_of(tiny_layers, LEFT)[0]
    texts = [(text,) for text in LEFT]
    assert search.get_params() == before
    same = Search(space="up to 1", splits=2, n_resamples=20).fit_classes(views, CLASSES, texts=texts).selection_
    assert same.chosen.dev == pytest.approx(selection.chosen.dev)


# Views in memory


def test_by_default_every_set_is_searched():
    pairs = graded_pairs(110, 6, seed=9)
    selection, expected = select(*pairs, dev="all"), brute_force(*pairs)
    assert {scored.layers: scored.dev for scored in selection.table} == pytest.approx(expected, abs=1e-9)
    assert selection.candidates == "63 sets"
    assert selection.chosen.mix == Mean.of(*max(expected, key=expected.get))
    assert selection.chosen.dev == pytest.approx(max(expected.values()), abs=1e-12)
    assert selection.last.mix == Mean.of(5)
    assert selection.last.dev == pytest.approx(expected[5,], abs=1e-12)
    as_tensors = select(torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1]), pairs[2].tolist(), dev="all")
    assert as_tensors.chosen == selection.chosen


@pytest.mark.parametrize("space", ["up to 2", Space(largest=2), "up-to-2"])
def test_a_space_is_given_as_a_value_or_a_text(space):
    assert select(*noise_pairs(40, 4), dev="all", space=space).candidates == "10 sets"


def test_a_single_layer():
    selection = select(*graded_pairs(110, 1))
    assert selection.chosen.layers == selection.last.layers == (0,)
    assert selection.gain.p_value == 1
    assert selection.stability.layers == {0: 1.0}


def test_poolings_are_compared_by_their_best_sets():
    left, right, gold = graded_pairs(110, 3, seed=1)
    good_left, good_right, good = planted_layer(110, 3, good=2)
    order = np.argsort(good)[np.argsort(np.argsort(gold, kind="stable"))]
    sides = {"mean": left, "cls": good_left[order]}, {"cls": good_right[order], "mean": right}
    selection = select(*sides, gold)
    assert selection.table.poolings == ("mean", "cls")
    assert selection.chosen.mix == Mean.of(2, pooling="cls")
    assert selection.last.pooling == "mean"  # the baseline is the usual one
    assert selection.stability.poolings == {"cls": 1.0}
    expected = brute_force(left, right, gold, selection.splits[0].dev)
    assert selection.table.score_of((0, 1)) == pytest.approx(expected[0, 1], abs=1e-9)


def test_a_function_of_the_user_chooses():
    pairs = graded_pairs(110, 3)
    called = select(*pairs, metric=lambda similarities, scores: spearmanr(similarities, scores).statistic)
    named = select(*pairs)
    assert called.chosen.mix == named.chosen.mix
    assert called.chosen.dev == pytest.approx(named.chosen.dev, abs=1e-6)
    assert called.gain.low <= called.gain.mean <= called.gain.high


@pytest.mark.parametrize("metric", ["cosine_ap", "cosine_accuracy"])
def test_labelled_pairs(metric):
    left, right, gold = graded_pairs(110, 3)
    labels = (gold > 2.5).astype(int)
    chosen = select(left, right, labels, dev="all", metric=metric).chosen
    similarities = cosine(chosen.mix(left), chosen.mix(right))
    by_limit = [((similarities >= limit) == labels).mean() for limit in [*similarities, np.inf]]
    expected = average_precision_score(labels, similarities) if metric == "cosine_ap" else max(by_limit)
    assert chosen.dev == pytest.approx(expected, abs=1e-12)
    assert select(left, right, labels.astype(bool), dev="all", metric=metric).chosen == chosen


@pytest.mark.parametrize("dev", [0.5, "all"])
def test_a_layer_whose_similarities_are_all_equal_never_wins(dev):
    for layer in range(3):
        left, right, gold = graded_pairs(100, 3)
        left[:, layer] = right[:, layer] = 1.0
        selection = select(left, right, gold, dev=dev, space="up to 1")
        assert selection.verdict.use.layers != (layer,)
        assert selection.chosen.layers != (layer,)
        assert np.isnan(selection.table[-1].dev)
        assert selection.table[-1].layers == (layer,)


@pytest.mark.parametrize("dev", [0.6, 360])
def test_pairs_of_a_question_stay_on_one_side(dev):
    left, right, gold = noise_pairs(600, 2)
    texts = [(f"question {number // 5}", f"answer {number}") for number in range(600)]
    selection = Search(dev=dev, splits=2, n_resamples=20).fit_views(left, right, gold, texts=texts).selection_
    for chosen, reporting in selection.splits:
        assert (len(chosen), len(reporting)) == (360, 240)
        assert not {number // 5 for number in chosen} & {number // 5 for number in reporting}
    assert any("600 pairs are 120 groups that share sentences" in warning for warning in selection.warnings)
    assert "groups" not in " ".join(select(left, right, gold, dev=dev).warnings)


def test_reporting_rows_share_no_sentence_with_choosing_ones(tiny_layers):
    texts = [SENTENCES[number % 3] if number < 12 else text for number, text in enumerate(LEFT)]
    selection = Search(n_resamples=20).fit(tiny_layers, list(zip(texts, RIGHT, GOLD, strict=True))).selection_
    chosen, reporting = ({texts[number] for number in side} for side in selection.splits[0])
    assert not chosen & reporting
    with pytest.raises(InputError, match=r"share a sentence with one that chooses and are left out; 0 are too few"):
        Search().fit(no_model, list(zip([LEFT[0]] * PAIRS, RIGHT, GOLD, strict=True)))


# What it leaves as it was


def test_parameters_are_read_changed_and_cloned():
    search = Search(metric="pearson", space="up to 2", dev=0.4, parts=None, seed=3)
    copied = clone(search)
    assert copied.get_params() == search.get_params()
    assert repr(copied) == repr(search) == "Search(space='up to 2', metric='pearson', dev=0.4, seed=3)"
    assert repr(Search()) == "Search()"
    assert search.set_params(splits=2) is search
    assert search.splits == 2
    with pytest.raises(LayerwiseError, match=r"Unknown parameter 'devv'.*Did you mean 'dev'"):
        search.set_params(devv=3)


def test_a_clone_of_a_fitted_search_is_not_fitted_and_finds_the_same():
    pairs = graded_pairs(100, 4)
    search = Search(metric="pearson", splits=2, seed=3, n_resamples=50).fit_views(*pairs)
    copied = clone(search)
    assert not hasattr(copied, "selection_")
    again = copied.fit_views(*pairs).selection_
    assert again.facts.model_copy(update={"seconds": {}}) == search.selection_.facts.model_copy(update={"seconds": {}})
    other = copied.set_params(seed=4).fit_views(*pairs).selection_
    assert other.gain != again.gain


def test_a_fit_changes_neither_parameters_nor_views_nor_the_model(tiny_layers):
    pairs, search = noise_pairs(40, 3), Search(dev=20, n_resamples=20, poolings=())
    before, views, parts = search.get_params(), [array.copy() for array in pairs], tiny_layers.parts
    assert search.fit_views(*pairs) is search
    assert search.fit(tiny_layers, ROWS).selection_.model().encoder is tiny_layers.encoder
    clusters = rows_of("clustering", LEFT, labels=CLASSES)
    assert search.set_params(space="up to 1").fit(tiny_layers, clusters).selection_.unit == "rows"
    assert search.set_params(space="all").get_params() == before
    assert all(np.array_equal(*pair) for pair in zip(pairs, views, strict=True))
    assert tiny_layers.parts == parts


def test_a_second_fit_replaces_the_first():
    search = Search(n_resamples=20).fit_views(*planted_layer(good=1))
    first = search.selection_
    search.fit_views(*planted_layer(good=2, seed=1))
    assert (first.chosen.layers, search.selection_.chosen.layers) == ((1,), (2,))
    assert search.verdict_ is search.selection_.verdict
    with pytest.raises(InputError, match="No set has a score"):
        search.fit_views(np.ones((60, 3, 4)), np.ones((60, 3, 4)), np.arange(60))
    assert not hasattr(search, "selection_"), "no first result behind a failed second fit"


# What it refuses

BAD_VIEWS = {
    "too few pairs": (lambda a, b, g: (a[:4], b[:4], g[:4]), {}, "4 pairs are too few to choose layers by"),
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
    "no poolings": (lambda a, b, g: ({}, {}, g), {}, "No views: give an array, or a mapping"),
    "no such pooling": (lambda a, b, g: ({"men": a}, {"men": b}, g), {}, "Unknown .* 'men'. Did you mean 'mean'"),
    "NaN views": (lambda a, b, g: (a, np.where(np.arange(6) < 5, b, np.nan), g), {}, "views of pair 0 hold NaN or inf"),
    "grades": (lambda a, b, g: (a, b, g + 2), {"metric": "cosine_accuracy"}, "cosine_accuracy needs labels 0 and 1"),
    "rare labels": (
        lambda a, b, g: (a, b, np.arange(40) == 0),
        {"metric": "cosine_ap", "dev": 20, "splits": 5},
        "pairs all have the score 0: constant scores say nothing",
    ),
    "equal": (lambda a, b, g: (a, a, g), {}, "No set has a score: all pairs are equally similar"),
    "metric": (lambda a, b, g: (a, b, g), {"metric": "spearmann"}, "Unknown metric .* Did you mean 'spearman'"),
    "no metric": (lambda a, b, g: (a, b, g), {"metric": 7}, "A metric is a name .* or a function, not 7"),
    "queries": (lambda a, b, g: (a, b, g), {"metric": "mrr@10"}, "mrr@10 ranks passages of queries.* fit_queries"),
    "empty space": (lambda a, b, g: (a, b, g), {"space": "at least 4"}, "No set of layers 0 to 2 fits the space"),
    "no layer": (lambda a, b, g: (a, b, g), {"space": "without 9"}, "There is no layer 9: this encoder has layers 0"),
    "most choose": (lambda a, b, g: (a, b, g), {"dev": 39}, "40 pairs, 39 of which choose, are too few"),
    "a head": (lambda a, b, g: (a, b, g), {"head": True}, "head is for the texts of a model; call fit"),
    "prompts": (lambda a, b, g: (a, b, g), {"prompts": "auto"}, "prompts is for the texts of a model; call fit"),
}


@pytest.mark.parametrize(("change", "options", "message"), BAD_VIEWS.values(), ids=BAD_VIEWS)
def test_bad_views_are_refused_in_one_clear_line(change, options, message):
    with pytest.raises(LayerwiseError, match=message) as error:
        Search(**options).fit_views(*change(*noise_pairs(40, 3)))
    assert "\n" not in str(error.value)


BAD_OPTIONS = {
    "no method": ({"method": "magic"}, "Unknown method 'magic'. Known: auto, exhaustive, beam"),
    "no space": ({"space": "some"}, "'some' is no space of layers"),
    "no pooling": ({"poolings": "men"}, "Unknown .* 'men'. Did you mean 'mean'"),
    "all poolings of sets": ({"poolings": "all"}, "poolings all is for a search of views; give prompts or a scale"),
    "dev in words": ({"dev": "half"}, "dev is 'half'; give a number of units, a share below 1, or all"),
    "no number": ({"dev": float("nan")}, "dev nan is not possible"),
    "negative seed": ({"seed": -1}, "[Ss]eed"),
    "no splits": ({"splits": 0}, "0 splits are not possible; 1 or more are"),
    "no resamples": ({"n_resamples": 0}, "0 resamples are not possible"),
    "parts and splits": ({"parts": [([0], [1])], "splits": 2}, "splits is for random splits; leave it out with parts"),
    "criterion and metric": ({"criterion": "pairs", "metric": "pearson"}, "metric is for scored data; leave it out"),
    "criterion and dev": ({"criterion": "dropout", "dev": 30}, "dev is for scored data; leave it out with criterion"),
    "no criterion": ({"criterion": "magic"}, "Unknown criterion 'magic'"),
    "views by pairs": ({"criterion": "pairs", "scale": "unit"}, "criterion pairs is for sets of layers"),
    "prompts and a space": ({"prompts": "auto", "space": "up to 2"}, "space is for sets of layers; .* with prompts"),
    "scale and a head": ({"scale": "unit", "head": True}, "head is for sets of layers; leave it out with scale"),
    "no scale": ({"scale": "big"}, "Unknown scale 'big'"),
    "no cost": ({"max_cost": 0}, "max_cost 0 is not possible; give more than 0"),
    "fit_on alone": ({"fit_on": "pairs"}, "fit_on pairs is the text that remove is fitted on; give remove too"),
    "fit_on without text": ({"fit_on": "corpus", "remove": (0,)}, "fit_on corpus needs a text; give corpus too"),
    "one task with weights": ({"weights": (1,)}, "1 task; layers for several tasks need 2 or more"),
    "weights of queries": ({"metric": "mrr@10", "method": "weights"}, "Layer weights need pairs with scores or labels"),
    "a head of queries": ({"metric": "mrr@10", "head": True}, "A head is searched with pair metrics"),
    "views of queries": ({"metric": "mrr@10", "prompts": "auto"}, "has no graded pairs, by which views of prompts"),
    "a small limit": ({"limit": 4}, "4 pairs are too few"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused_in_one_clear_line_before_a_model_is_loaded(options, message):
    with pytest.raises(LayerwiseError, match=message) as error:
        Search(**options).fit(no_model, ROWS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "list is no data that can be searched"),
        ([(1, 2, 3, 4)], "list is no data that can be searched"),
        (pd.DataFrame({"a": [1]}), "DataFrame has the columns a"),
        ("missing.csv", "missing.csv"),
        ([("a", "b", 1.0), ("a", "b")], "list is no data that can be searched"),
    ],
)
def test_data_that_cannot_be_searched_is_refused(data, message):
    with pytest.raises(LayerwiseError, match=message):
        Search().fit(no_model, data)


def fits_of_every_kind():
    binary, others = [number % 2 for number in range(PAIRS)], {"labels": CLASSES}
    views = noise_pairs(40, 3)
    by_kind = {
        "sts": pairs_in_memory(LEFT, RIGHT, GOLD, source="memory"),
        "several": [rows_of("bitext", LEFT, RIGHT), rows_of("clustering", LEFT, **others)],
        "clustering": rows_of("clustering", LEFT, **others),
        "classification": rows_of("classification", LEFT, **others),
        "reranking": rows_of("reranking", [LEFT[number // 4] for number in range(PAIRS)], RIGHT, binary),
        "pair-classification": rows_of("pair-classification", LEFT, RIGHT, binary),
        "bitext": rows_of("bitext", LEFT, RIGHT),
        "retrieval": rows_of("retrieval", LEFT, RIGHT, binary),
    }
    fits = {kind: lambda search, rows=rows: search.fit(no_model, rows) for kind, rows in by_kind.items()}
    problems = make_problems({"mean": views[0]}, {"mean": views[1]}, views[2], "spearman")
    return fits | {
        "texts": lambda search: search.set_params(criterion="pairs").fit(no_model, LEFT),
        "prompts": lambda search: search.set_params(prompts="auto").fit(no_model, ROWS),
        "views": lambda search: search.fit_views(*views),
        "queries": lambda search: search.fit_queries(*views[:2], range(40)),
        "classes": lambda search: search.fit_classes(views[0], CLASSES[:40]),
        "problems": lambda search: search.fit_problems(problems, metric="spearman", unit="pairs"),
    }


@pytest.mark.parametrize("kind", fits_of_every_kind())
def test_that_none_choose_is_refused_for_every_kind(kind):
    with pytest.raises(InputError, match="dev 0 is not possible: some must choose; give a number, or a share below 1"):
        fits_of_every_kind()[kind](Search(dev=0))


@pytest.mark.parametrize("options", [{"dev": 30}, {"metric": "f1"}, {"method": "beam"}, {"head": True}, {"limit": 30}])
def test_options_that_a_search_for_classes_has_not_are_refused(options):
    (name,) = options
    with pytest.raises(InputError, match=rf"{name} is for pairs|by accuracy, not by another metric"):
        Search(**options).fit(no_model, rows_of("classification", LEFT, labels=CLASSES))


# The model around the mix


def make_head(width=WIDTH, out=20, seed=0):
    random = torch.Generator().manual_seed(seed)
    return Head(torch.randn(out, width, generator=random), torch.randn(out, generator=random))


@pytest.fixture(scope="module")
def whole(tiny_layers):
    """A model with all that may stand around a mix."""
    records = [FittedOn.of(["a door"], source="a test", what=what) for what in (ENCODER, "whitening")]
    return LayerModel(
        tiny_layers.encoder,
        "last",
        heads=[make_head()],
        normalize=True,
        prompts=PROMPTS,
        default_prompt_name="topic",
        similarity="dot",
        fitted_on=records,
    )


def test_pairs_get_the_default_prompt_and_queries_and_passages_theirs(whole, tiny_layers):
    selection = Search(n_resamples=20).fit(whole, ROWS).selection_
    assert selection.facts.prompts == (PROMPTS["topic"],) * 2
    prompted = select(*views_of(whole, LEFT, RIGHT, prefix=PROMPTS["topic"]), GOLD)
    assert selection.last.dev == pytest.approx(prompted.last.dev, abs=1e-6)
    plain = Search(n_resamples=20).fit(tiny_layers, ROWS).selection_
    assert plain.facts.prompts == ("", "")
    assert selection.last.dev != pytest.approx(plain.last.dev, abs=1e-3), "prompts matter here"
    queries = Search(metric="mrr@10", n_resamples=20).fit(whole, ROWS).selection_
    assert queries.facts.prompts == (PROMPTS["query"], PROMPTS["document"])


@pytest.mark.parametrize("keeps", [False, True])
def test_the_model_to_use_is_the_same_in_all_but_its_mix(whole, keeps):
    selection = Search(space="exactly 2", head=keeps, n_resamples=20).fit(whole, ROWS).selection_
    model = selection.model()
    assert model.mix == selection.chosen.mix
    for name in ("encoder", "prompts", "default_prompt_name", "similarity_fn_name", "normalize"):
        assert getattr(model, name) == getattr(whole, name)
    assert list(model.heads) == (list(whole.heads) if keeps else [])
    assert model.fitted_on[:-1] == (whole.fitted_on if keeps else whole.fitted_on[:1])
    notes = [note for note in selection.warnings if "left out" in note]
    assert notes == ([] if keeps else ["the model's 1 head(s) after the mix are left out"])


def test_with_its_head_every_set_goes_through_it(whole):
    selection = Search(head=True, dev="all").fit(whole, ROWS).selection_
    views = views_of(whole, LEFT, RIGHT, prefix=PROMPTS["topic"])
    for scored in selection.table[:5]:
        with torch.inference_mode():
            mixed = [make_head()(torch.from_numpy(scored.mix(side))).double().numpy() for side in views]
        assert scored.dev == pytest.approx(spearmanr(cosine(*mixed), GOLD).statistic, abs=1e-3)
    assert selection.last.dev != pytest.approx(Search(dev="all").fit(whole, ROWS).selection_.last.dev, abs=1e-3)


@pytest.mark.parametrize(
    ("mix", "heads", "message"),
    [
        ("last", (), "has no head after its mix"),
        ("last", (make_head(), make_head(20, 8)), "has 2 heads after its mix"),
        ("concat(1,2)", (make_head(2 * WIDTH),), "its head takes 64 numbers, but a mean of layers has 32"),
        ("last", (torch.nn.Identity(),), "its head is no linear layer"),
    ],
)
def test_a_head_that_cannot_be_searched_is_refused(tiny_layers, mix, heads, message):
    model = LayerModel(tiny_layers.encoder, mix)
    model.heads = heads
    with pytest.raises(InputError, match=message):
        Search(head=True).fit(model, ROWS)


def test_notes_say_what_differs_from_the_model(tiny_layers):
    model = LayerModel(tiny_layers.encoder, "concat(1,2)", truncate_dim=16, similarity="euclidean")
    notes = Search(n_resamples=20).fit(model, ROWS).selection_.warnings
    assert "layers are chosen by cosine, but the model compares by euclidean" in notes
    assert any("truncation to 16 dimensions is left out" in note for note in notes)
    assert any("the model's mix concat(1,2)" in note for note in notes)


def test_layers_that_the_model_has_not_are_refused(tiny_layers):
    with pytest.raises(MixError, match="There is no layer 9: this encoder has layers 0 to 4"):
        Search(space="without 9").fit(tiny_layers, ROWS)


def test_role_and_limit_take_a_part_of_the_rows(tiny_layers):
    splits = {"dev": range(24), "test": range(24, PAIRS)}
    rows = rows_of("sts", LEFT, RIGHT, GOLD, splits=splits)
    declared = Search(n_resamples=20).fit(tiny_layers, rows).selection_
    assert [side.tolist() for side in declared.splits[0]] == [list(range(24)), list(range(24, PAIRS))]
    part = Search(n_resamples=20, role="test", limit=30).fit(tiny_layers, rows).selection_
    assert (part.n_choosing, part.n_reporting) == (15, 15)
    drawn = Search(n_resamples=20, dev=0.5, splits=2).fit(tiny_layers, rows).selection_
    assert (len(drawn.splits), drawn.n_choosing) == (2, 30)
