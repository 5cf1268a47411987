"""Layers for clustering, reranking and other kinds: sets scored as the kind scores them, parts, resamples."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, v_measure_score

from layerwise.errors import InputError
from layerwise.evidence import draw_splits
from layerwise.kinds import prepare
from layerwise.mixes import Mean
from layerwise.search import KindProblem, Search, SearchTask, SetScorer, Space, make_problems
from layerwise.search.joint_problem import JointProblem
from layerwise.search.sets import weights_of
from layerwise.search.spaces import layers_of, membership
from support.kind_rows import rows_of
from support.slow_cases import covering, one_in, some_slow

LAYERS, WIDTH, COUNT = 4, 6, 60
TEXTS = [f"text {n}" for n in range(COUNT)]
OTHERS = [f"other {n}" for n in range(COUNT)]
LABELS = [n % 3 for n in range(COUNT)]


def rows_by_kind():
    queries = [f"query {n // 4}" for n in range(COUNT)]
    binary = [n % 2 for n in range(COUNT)]
    few = {"train": range(30), "test": range(30, COUNT)}
    return {
        "clustering": rows_of("clustering", TEXTS, labels=list(map(str, LABELS))),
        "fewshot": rows_of("fewshot", TEXTS, labels=list(map(str, LABELS)), splits=few, shots=4),
        "reranking": rows_of("reranking", queries, TEXTS, binary),
        "pair-classification": rows_of("pair-classification", TEXTS, OTHERS, binary),
        "bitext": rows_of("bitext", TEXTS, OTHERS),
        "retrieval": rows_of(
            "retrieval",
            [f"query {n}" for n in range(20)],
            TEXTS[:20],
            right_ids=[f"id {n}" for n in range(20)],
            corpus={f"id {n}": text for n, text in enumerate(TEXTS)},
        ),
    }


KINDS = tuple(rows_by_kind())


def views_of(texts, *, seed=0):
    """Layer 2 says the number of the text; the others are noise."""
    random = np.random.default_rng(seed)
    views = random.normal(size=(len(texts), LAYERS, WIDTH)).astype(np.float32)
    for row, text in enumerate(texts):
        number = int(text.split()[-1])
        views[row, 2] = np.random.default_rng(number % 3).normal(size=WIDTH) * 3 + views[row, 2] * 0.3
        views[row, 2, number % WIDTH] += 1
    return views


def problem_of(kind, *, normalize=False):
    task = SearchTask.of(rows_by_kind()[kind]).problem
    views = {role: views_of(texts, seed=len(role)) for role, texts in task.texts.items()}
    return KindProblem(task, views, rows_by_kind()[kind].task.metric, normalize)


@pytest.mark.parametrize(("kind", "normalize"), one_in(2, covering(KINDS, [False, True])))
def test_every_set_is_scored_as_its_embeddings_are(kind, normalize):
    problem, rows = problem_of(kind, normalize=normalize), rows_by_kind()[kind]
    masks, scores = problem.scan(Space())
    assert len(masks) == 2**LAYERS - 1
    for mask, score in zip(masks[::4], scores[::4], strict=True):
        vectors = {role: views[:, list(layers_of(int(mask)))].mean(1) for role, views in problem.views.items()}
        if normalize:
            vectors = {role: rows / np.linalg.norm(rows, axis=1, keepdims=True) for role, rows in vectors.items()}
        expected = prepare(rows).score(vectors).figures[rows.task.metric]
        assert score == pytest.approx(expected / 100, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_scored_as_a_task_of_its_own_rows(kind):
    """Except retrieval, whose corpus stays whole."""
    problem, rows = problem_of(kind), rows_by_kind()[kind]
    units = np.arange(0, len(problem), 5)
    if kind in ("reranking", "retrieval"):
        names = rows.left_ids or rows.left
        chosen = set(list(dict.fromkeys(names))[::5])
        tested = np.array([row for row in rows.splits["test"] if names[row] in chosen])
    else:
        tested = rows.splits["test"][units]
    alone = prepare(rows_of_part(rows, tested))
    weights = membership(np.array([0b0100, 0b1001], dtype=np.uint64), LAYERS)
    for row, score in zip(weights, problem.pick(units).scores(weights), strict=True):
        by_text = {
            text: vector
            for role, views in problem.views.items()
            for text, vector in zip(problem.task.texts[role], views[:, row.astype(bool)].mean(1), strict=True)
        }
        vectors = {role: np.stack([by_text[text] for text in texts]) for role, texts in alone.texts.items()}
        assert score == pytest.approx(alone.score(vectors).figures[rows.task.metric] / 100, abs=1e-9)


def rows_of_part(rows, tested):
    return replace(rows, splits=rows.splits | {"test": tested})


@pytest.mark.parametrize("kind", ["reranking", "retrieval", pytest.param("fewshot", marks=pytest.mark.slow)])
def test_resamples_of_independent_units_are_means_of_what_was_drawn(kind):
    problem = problem_of(kind)
    random = np.random.default_rng(1)
    draws = [random.integers(len(problem), size=len(problem)) for _ in range(5)]
    weights = membership(np.array([0b0100, 0b0011], dtype=np.uint64), LAYERS)
    single = np.array([problem.pick(np.array([unit])).scores(weights) for unit in range(len(problem))])
    expected = np.stack([single[draw].mean(0) for draw in draws])
    assert np.abs(problem.redrawn(weights, draws) - expected).max() < 1e-12


def test_resamples_of_pairs_are_scikit_learns_average_precision():
    problem, rows = problem_of("pair-classification"), rows_by_kind()["pair-classification"]
    random, row = np.random.default_rng(2), membership(np.array([0b0101], dtype=np.uint64), LAYERS)
    draws = [random.integers(COUNT, size=COUNT) for _ in range(4)]
    items, gold = problem._outcome(row[0]).items, np.array(rows.labels)
    expected = [average_precision_score(gold[draw], items[draw]) for draw in draws]
    assert problem.redrawn(row, draws)[:, 0] == pytest.approx(expected)


def test_an_interval_of_clusters_holds_the_chance_of_k_means():
    """Many resamples of one set are clustered by several seeds; a few, and the score, by mteb's own."""
    problem, rows = problem_of("clustering"), rows_by_kind()["clustering"]
    row, whole = membership(np.array([0b1000], dtype=np.uint64), LAYERS), np.arange(COUNT)
    assert problem.redrawn(row, [whole]) == pytest.approx(problem.scores(row)[0])
    by_seed = problem.redrawn(row, [whole] * 100)[:, 0]
    clusters = [variant.score(problem._embed(row[0])).items for variant in problem.task.reseeded(10)]
    expected = [v_measure_score(rows.labels, found) for found in clusters]
    assert by_seed[:10] == pytest.approx(expected)
    assert len(set(np.round(expected, 9))) > 1
    assert by_seed.reshape(10, 10) == pytest.approx(np.tile(expected, (10, 1)))


def test_a_gain_of_clusters_is_the_mean_of_its_random_starts():
    problem, parts = problem_of("clustering"), [(np.arange(30), np.arange(30, COUNT))]
    search = Search(parts=parts, space="up to 2", n_resamples=100)
    selection = search.fit_problems({"mean": problem}, metric="v_measure", unit="rows").selection_
    weights = [weights_of(scored.mix, LAYERS) for scored in (selection.chosen, selection.last)]
    best, last = (problem.redrawn(row, [parts[0][1]] * 100)[:10, 0] for row in weights)
    assert selection.gain.mean == pytest.approx(float(np.mean(best - last)))
    assert selection.gain.low <= selection.gain.mean <= selection.gain.high


@pytest.mark.parametrize("kind", some_slow(KINDS, slow=("fewshot",)))
def test_the_planted_layer_is_found_by_every_method(kind):
    problem = problem_of(kind)
    for method in ("greedy",) if kind == "fewshot" else ("exhaustive", "beam", "greedy"):  # it takes seconds a method
        scorer = SetScorer(
            {"mean": problem}, draw_splits(len(problem), 0.5, 1, 0), "any", "rows", method=method, beam_width=2
        )
        selection = Search(n_resamples=20).fit_scorer(scorer).selection_
        assert 2 in selection.chosen.layers, method
        assert selection.chosen.test == pytest.approx(scorer.unseen_scores([selection.chosen.mix]).mean())
        if kind != "clustering":  # whose gain is the mean over random starts
            assert selection.gain.mean == pytest.approx(selection.chosen.test - selection.last.test)


def test_cosine_ap_has_an_exact_form():
    rows = rows_by_kind()["pair-classification"]
    task = SearchTask.of(rows, metric="cosine_ap")
    left, right = views_of(TEXTS), views_of(OTHERS, seed=5)
    exact = make_problems({"mean": left}, {"mean": right}, rows.labels, "cosine_ap")["mean"]
    views = {"": np.concatenate([left, right])[[[*TEXTS, *OTHERS].index(text) for text in task.problem.texts[""]]]}
    real = KindProblem(task.problem, views, "cosine_ap")
    masks, scores = exact.scan(Space())
    assert scores == pytest.approx(real.scores(membership(masks, LAYERS)), abs=1e-6)


def test_several_tasks_are_a_weighted_mean():
    tasks = [problem_of("reranking"), problem_of("bitext"), problem_of("clustering")]
    joint = JointProblem.of(tasks, [2, 1, 1])
    masks, scores = joint.scan(Space(largest=2))
    weights = membership(masks, LAYERS)
    assert [layers_of(int(mask)) for mask in masks] == sorted(
        (chosen for size in (1, 2) for chosen in combinations(range(LAYERS), size)),
        key=lambda layers: sum(1 << layer for layer in layers),
    )
    expected = sum(share * task.scores(weights) for share, task in zip((0.5, 0.25, 0.25), tasks, strict=True))
    assert scores == pytest.approx(expected)
    assert joint.scores(weights) == pytest.approx(expected)
    sizes = list(map(len, tasks))
    picked = joint.pick(np.concatenate([np.arange(6), sizes[0] + np.arange(20), sum(sizes[:2]) + np.arange(30)]))
    parts = [task.pick(np.arange(size)) for task, size in zip(tasks, (6, 20, 30), strict=True)]
    assert list(map(len, picked.tasks)) == [6, 20, 30]
    assert picked.scores(weights) == pytest.approx(JointProblem.of(parts, [2, 1, 1]).scores(weights))
    whole = joint.redrawn(weights[:2], [np.arange(len(joint))])
    assert whole[0] == pytest.approx(expected[:2])


def test_dev_rows_choose_and_test_rows_report():
    splits = {"train": range(20), "dev": range(20, 36), "test": range(36, COUNT)}
    rows = rows_of("fewshot", TEXTS, labels=list(map(str, LABELS)), splits=splits, shots=4)
    task = SearchTask.of(rows)
    ((dev, test),) = task.parts
    assert (list(dev), list(test)) == (list(range(16)), list(range(16, 40)))
    assert set(task.texts_of(test)) >= set(TEXTS[36:])
    assert not set(task.texts_of(test)) & set(TEXTS[20:36])
    assert SearchTask.of(rows, fixed=False).parts is None
    assert SearchTask.of(rows, role="test").units == 24
    assert SearchTask.of(rows, limit=12).units == 12


def test_a_limit_counts_queries_that_say_something():
    queries, labels = [f"query {n // 4}" for n in range(COUNT)], [int(n % 4 == 0 and n < 40) for n in range(COUNT)]
    task = SearchTask.of(rows_of("reranking", queries, TEXTS, labels), limit=6)
    assert task.units == 6
    assert all(len(one.grades) == 4 for one in task.problem.queries)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (lambda: rows_by_kind()["fewshot"], {"metric": "f1_macro"}, "f1_macro cannot be resampled.*: accuracy"),
        (lambda: rows_by_kind()["clustering"], {"metric": "map"}, "Unknown metric of clustering 'map'"),
        (
            lambda: rows_of("clustering", TEXTS, labels=list(map(str, LABELS)), subsets=["a", "b"] * 30),
            {},
            "has 2 sets that are clustered apart",
        ),
        (lambda: rows_by_kind()["bitext"], {"limit": 1}, "a limit of 1 is not possible"),
        (lambda: rows_by_kind()["bitext"], {"role": "dev"}, None),
        (
            lambda: rows_of(
                "reranking", ["q"] * 8, TEXTS[:8], [0, 1] * 4, splits={"dev": range(4), "test": range(4, 8)}
            ),
            {},
            "dev and test rows share queries",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused_before_a_model_is_loaded(rows, options, message):
    if message is None:
        assert SearchTask.of(rows(), **options).units == COUNT  # a task without splits has one part
        return
    with pytest.raises(InputError, match=message):
        SearchTask.of(rows(), **options)


def test_layer_weights_and_broken_views_are_refused():
    problem = problem_of("bitext")
    with pytest.raises(InputError, match="takes sets of layers"):
        problem.scores(np.array([[0.5, 0, 0, 1]]))
    broken = {role: views.copy() for role, views in problem.views.items()}
    broken[""][3, 1, 0] = np.nan
    with pytest.raises(InputError, match="hold NaN or infinite numbers"):
        KindProblem(problem.task, broken, "f1")
    with pytest.raises(InputError, match="have one class"):
        problem_of("clustering").pick(np.array([0, 3, 6]))
    with pytest.raises(InputError, match="all have the label 0"):
        problem_of("pair-classification").pick(np.array([0, 2]))


def test_the_layer_set_of_a_choice_is_what_was_scored():
    problem = problem_of("bitext")
    mix = Mean.of(0, 2)
    vectors = {role: np.asarray(mix(views)) for role, views in problem.views.items()}
    expected = problem.task.score(vectors).figures["f1"] / 100
    assert problem.scores(membership(np.array([0b101], dtype=np.uint64), LAYERS))[0] == expected
    assert problem.scores(weights_of(mix, LAYERS))[0] == expected


@pytest.mark.parametrize("kind", ["clustering", "reranking", "bitext"])
def test_a_model_is_searched_for_a_task_by_its_own_metric(kind, tiny_layers):
    rows = rows_by_kind()[kind]
    selection = Search(space="exactly 2; 1-3", n_resamples=20).fit(tiny_layers, rows).selection_
    task = SearchTask.of(rows)
    assert (selection.metric, selection.unit, selection.units) == (rows.task.metric, task.unit, len(task.problem))
    test = selection.splits[0].test
    part = task.problem.pick(np.unique(test))
    model = tiny_layers.replaced(mix=selection.chosen.mix)
    vectors = {role: model.encode(texts, prompt_name=role or None) for role, texts in part.texts.items()}
    expected = part.score(vectors).figures[rows.task.metric] / 100
    assert selection.chosen.test == pytest.approx(expected, abs=2e-3)
