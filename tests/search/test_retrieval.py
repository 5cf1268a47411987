"""Retrieval: MRR, recall and NDCG of every set of layers against sorting the candidates one query at a time."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import ndcg_score

from layerwise import Head, Search
from layerwise.errors import InputError, LayerwiseError
from layerwise.search import RetrievalMetric, Space, layers_of, make_problems, retrieval
from layerwise.search.retrieval import RetrievalProblem, read_relevance
from layerwise.search.spaces import membership

METRICS = ["mrr@10", "mrr@1", "recall@1", "recall@5", "ndcg@3", "ndcg@10"]


def cosines(queries, candidates):
    """(q, d), (c, d) -> (q, c), 0 for a vector of zeros; equal to 11 digits means equal."""
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(candidates, axis=1)
    products = queries @ candidates.T
    return np.round(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0), 11)


def naive_query(metric, similarities, grades):
    """One query: candidates sorted, the earlier one first where two are equal."""
    name, cutoff = metric.split("@")
    order = sorted(range(len(similarities)), key=lambda number: (-similarities[number], number))
    top = [grades.get(number, 0.0) for number in order[: int(cutoff)]]
    if name == "mrr":
        return next((1 / place for place, grade in enumerate(top, start=1) if grade > 0), 0.0)
    if name == "recall":
        return sum(grade > 0 for grade in top) / len(grades)
    ideal = sorted(grades.values(), reverse=True)[: int(cutoff)]

    def gain(grades):
        return sum(grade / np.log2(place + 1) for place, grade in enumerate(grades, start=1))

    return gain(top) / gain(ideal)


def brute_force(queries, candidates, relevance, metric):
    layers, found = range(queries.shape[1]), {}
    for chosen in (chosen for size in layers for chosen in combinations(layers, size + 1)):
        similarities = cosines(queries[:, list(chosen)].mean(1), candidates[:, list(chosen)].mean(1))
        scores = [naive_query(metric, row, grades) for row, grades in zip(similarities, relevance, strict=True)]
        found[chosen] = float(np.mean(scores))
    return found


def problem_of(queries, candidates, relevance, metric):
    return RetrievalProblem.of(queries, candidates, relevance, RetrievalMetric.parse(metric))


def scanned(queries, candidates, relevance, metric, space=None):
    masks, scores = problem_of(queries, candidates, relevance, metric).scan(space or Space())
    return {layers_of(int(mask)): float(score) for mask, score in zip(masks, scores, strict=True)}


def random_search(queries=9, candidates=25, layers=4, width=5, seed=0):
    """Views of queries and candidates, and one to four graded candidates for each query."""
    random = np.random.default_rng(seed)
    views = random.normal(size=(queries, layers, width)), random.normal(size=(candidates, layers, width))
    relevance = [
        {int(number): float(random.integers(1, 4)) for number in random.choice(candidates, count, replace=False)}
        for count in random.integers(1, 5, size=queries)
    ]
    for query, grades in enumerate(relevance):
        views[1][list(grades)] += views[0][query]  # relevant ones are alike
    return *views, relevance


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_every_set_scores_as_by_sorting(metric, layers):
    queries, candidates, relevance = random_search(layers=layers, seed=layers)
    expected = brute_force(queries, candidates, relevance, metric)
    found = scanned(queries, candidates, relevance, metric)
    assert found.keys() == expected.keys()
    assert len(found) == 2**layers - 1
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_equal_candidates_come_in_their_order(metric):
    queries, candidates, relevance = random_search(seed=3)
    candidates[10:20] = candidates[:10]  # twice the same
    candidates[20] = candidates[3] * 7  # as similar, but for rounding
    queries[4] = candidates[0]
    queries[5] = 0
    found = scanned(queries, candidates, relevance, metric)
    assert found == pytest.approx(brute_force(queries, candidates, relevance, metric), abs=1e-12)


def test_no_information_leaves_candidates_in_their_order():
    queries, candidates, _ = random_search(queries=3)
    candidates[:] = candidates[:1]
    found = scanned(queries, candidates, [0, 4, 9], "mrr@5")
    assert list(found.values()) == pytest.approx([(1 + 1 / 5 + 0) / 3] * 15)


@given(st.integers(0, 10**6), st.sampled_from(METRICS))
def test_scale_and_order_of_queries_change_no_score(seed, metric):
    queries, candidates, relevance = random_search(queries=6, candidates=12, layers=3, seed=seed % 50)
    random = np.random.default_rng(seed)
    order, scale = random.permutation(6), random.uniform(0.01, 100)
    shuffled = scanned(queries[order] * scale, candidates, [relevance[place] for place in order], metric)
    assert shuffled == pytest.approx(scanned(queries, candidates, relevance, metric), abs=1e-12)


@pytest.mark.parametrize("items", [1, 60, 10**6])
@pytest.mark.parametrize("metric", ["mrr@10", "ndcg@10"])
def test_blocks_of_queries_add_up(items, metric, monkeypatch):
    queries, candidates, relevance = random_search()
    expected = brute_force(queries, candidates, relevance, metric)
    monkeypatch.setattr(retrieval, "_ITEMS", items)
    problem, done = problem_of(queries, candidates, relevance, metric), []
    masks, scores = problem.scan(Space(), progress=done.append)
    assert len(list(problem._blocks())) == {1: 9, 60: 5, 10**6: 1}[items]
    assert {layers_of(int(mask)): score for mask, score in zip(masks, scores, strict=True)} == pytest.approx(expected)
    assert sum(done) == 15
    again = problem.scores(membership(masks, 4))
    assert again == pytest.approx(scores, abs=1e-12)


def test_scores_of_given_weights_picked_queries_and_redrawn_ones():
    queries, candidates, relevance = random_search()
    problem = problem_of(queries, candidates, relevance, "ndcg@10")
    weights = np.random.default_rng(1).uniform(0, 1, size=(70, 4))
    found = problem.scores(weights)
    for row in (0, 1, 69):
        similarities = cosines(*(np.einsum("plw,l->pw", side, weights[row]) for side in (queries, candidates)))
        by_query = [naive_query("ndcg@10", *pair) for pair in zip(similarities, relevance, strict=True)]
        assert found[row] == pytest.approx(np.mean(by_query), abs=1e-12)
        draws = [np.array([0, 0, 3]), np.array([8]), np.arange(9)]
        redrawn = problem.redrawn(weights[row : row + 1], draws)[:, 0]
        assert redrawn == pytest.approx([np.mean([by_query[place] for place in draw]) for draw in draws], abs=1e-12)
        assert problem.pick(draws[0]).scores(weights[row : row + 1]) == pytest.approx(redrawn[:1], abs=1e-12)


def test_spaces_are_respected():
    queries, candidates, relevance = random_search(layers=5)
    everything = scanned(queries, candidates, relevance, "mrr@10")
    found = scanned(queries, candidates, relevance, "mrr@10", Space(largest=3, include=(1,), exclude=(0,)))
    assert set(found) == {chosen for chosen in everything if len(chosen) <= 3 and 1 in chosen and 0 not in chosen}
    assert found == pytest.approx({chosen: everything[chosen] for chosen in found}, abs=1e-12)


def test_a_small_space_of_many_layers_costs_no_walk_through_all_sets(monkeypatch):
    queries, candidates, relevance = random_search(layers=18)
    asked, allows = [], Space.allows
    monkeypatch.setattr(Space, "allows", lambda self, masks: asked.append(len(masks)) or allows(self, masks))
    assert len(scanned(queries, candidates, relevance, "mrr@10", Space(largest=1))) == 18
    assert sum(asked) < 2**14  # of 2^18 sets, 18 are in the space


def test_a_layer_of_short_vectors_is_no_zero_vector():
    queries, candidates, relevance = random_search()
    queries[:, 0] *= 1e-6
    candidates[:, 0] *= 1e-6
    found = scanned(queries, candidates, relevance, "ndcg@10")
    assert found == pytest.approx(brute_force(queries, candidates, relevance, "ndcg@10"), abs=1e-12)


def test_layers_that_cancel_out_are_a_zero_vector():
    queries, candidates, relevance = random_search()
    candidates[::3, 2] = -candidates[::3, 1]
    found = scanned(queries, candidates, relevance, "ndcg@10")
    assert found == pytest.approx(brute_force(queries, candidates, relevance, "ndcg@10"), abs=1e-12)


def test_ndcg_without_a_cut_off_is_scikit_learns():
    queries, candidates, relevance = random_search()
    matrix = np.array([[grades.get(number, 0.0) for number in range(25)] for grades in relevance])
    similarities = cosines(queries.mean(1), candidates.mean(1))
    found = scanned(queries, candidates, relevance, "ndcg@25")
    assert found[0, 1, 2, 3] == pytest.approx(ndcg_score(matrix, similarities), abs=1e-12)


def test_relevance_in_every_form_means_the_same():
    queries, candidates, _ = random_search(queries=3)
    expected = scanned(queries, candidates, [{4: 1.0}, {0: 1.0}, {9: 1.0}], "mrr@10")
    matrix = np.zeros((3, 25))
    matrix[[0, 1, 2], [4, 0, 9]] = 1
    forms = [[4, 0, 9], np.array([4, 0, 9]), [[4], [0], [9]], [np.array([4]), (0,), {9}], [{4: 1, 7: 0}, {0: 1}, 9]]
    for relevance in (*forms, matrix, matrix.astype(int), matrix.astype(bool)):
        assert scanned(queries, candidates, relevance, "mrr@10") == expected, relevance


def test_grades_of_a_matrix_count():
    queries, candidates, relevance = random_search()
    matrix = np.array([[grades.get(number, 0.0) for number in range(25)] for grades in relevance])
    expected = pytest.approx(scanned(queries, candidates, relevance, "ndcg@10"), abs=1e-12)
    assert scanned(queries, candidates, matrix, "ndcg@10") == expected
    assert scanned(queries, candidates, [list(grades) for grades in relevance], "ndcg@10") != expected


def test_a_matrix_as_a_tensor_is_no_list_of_numbers():
    queries, candidates, relevance = random_search()
    matrix = np.array([[grades.get(number, 0.0) for number in range(25)] for grades in relevance])
    found = scanned(queries, candidates, torch.from_numpy(matrix), "ndcg@10")
    assert found == pytest.approx(scanned(queries, candidates, matrix, "ndcg@10"), abs=1e-12)


@pytest.mark.parametrize(
    ("relevance", "message"),
    [
        ([0, 1], "3 queries, but relevant candidates for 2"),
        ([0, 1, 25], "Query 2 needs candidates of 0 to 24 with grades above 0: 25"),
        ([0, -1, 2], "Query 1 needs candidates of 0 to 24"),
        ([0, [], 2], "Query 1 needs candidates of 0 to 24"),
        ([{}, 1, 2], "Query 0 needs candidates of 0 to 24"),
        ([0, 1, {3: 0}], "Query 2 needs candidates of 0 to 24"),
        ([0, 1, {3: np.inf}], "Query 2 needs candidates of 0 to 24"),
        ([0, 1, {3: -1.0}], "Query 2 needs candidates of 0 to 24"),
        (np.zeros((3, 25)), "Query 0 needs candidates of 0 to 24"),
        (np.ones((2, 25)), "3 queries, but relevant candidates for 2"),
        (np.ones((3, 26)), "Query 0 needs candidates of 0 to 24"),
    ],
)
def test_relevance_that_names_no_candidates_is_refused(relevance, message):
    queries, candidates, _ = random_search(queries=3)
    with pytest.raises(InputError, match=message):
        problem_of(queries, candidates, relevance, "mrr@10")


@pytest.mark.parametrize(
    "relevance",
    [3, None, [0.5, 0.1, 0.9], np.array([0.5, 0.1, 0.9]), ["a", "b", "c"], [None, 1, 2]],
    ids=["number", "nothing", "scores", "array of scores", "texts", "a hole"],
)
def test_what_is_no_relevance_at_all_is_refused_in_a_clear_line(relevance):
    queries, candidates, _ = random_search(queries=3)
    with pytest.raises(InputError, match=r"[Qq]uer"):
        problem_of(queries, candidates, relevance, "mrr@10")


@pytest.mark.parametrize("relevance", [[0, {3: np.nan, 4: 1.0}], np.array([[1.0, 0.0], [np.nan, 1.0]])])
def test_a_grade_that_is_no_number_is_not_silently_dropped(relevance):
    with pytest.raises(InputError, match="Query 1"):
        read_relevance(relevance, 2, 5 if isinstance(relevance, list) else 2)


def test_too_few_candidates_and_queries():
    queries, candidates, _ = random_search(queries=3)
    with pytest.raises(InputError, match="3 queries and 1 candidates are too few"):
        problem_of(queries, candidates[:1], [0, 0, 0], "mrr@10")
    with pytest.raises(InputError, match="0 queries and 25 candidates are too few"):
        problem_of(queries[:0], candidates, [], "mrr@10")


def test_views_that_do_not_fit():
    queries, candidates, _ = random_search(queries=3)
    with pytest.raises(InputError, match=r"shape \(sentences, layers, width\), not \(3, 4\)"):
        problem_of(queries[:, :, 0], candidates, [0, 1, 2], "mrr@10")
    with pytest.raises(InputError, match=r"Queries and candidates differ: \(3, 4, 5\) and \(25, 3, 5\)"):
        problem_of(queries, candidates[:, :3], [0, 1, 2], "mrr@10")
    candidates[7, 2, 1] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        problem_of(queries, candidates, [0, 1, 2], "mrr@10")


def test_names_of_retrieval_metrics():
    assert RetrievalMetric.parse("recall@5") == RetrievalMetric("recall", 5)
    assert RetrievalMetric.parse("recall@5").name == "recall@5"
    assert RetrievalMetric.parse("spearman") is None
    assert RetrievalMetric.parse("mrr") is None
    with pytest.raises(LayerwiseError, match="'mrr@0': the cut-off must be 1 or more"):
        RetrievalMetric.parse("mrr@0")


@pytest.mark.parametrize("metric", ["mrr", "map@10", "spearman"])
def test_queries_are_ranked_by_metrics_of_retrieval_only(metric):
    with pytest.raises(LayerwiseError, match=f"queries are ranked by mrr@10.* not by {metric}"):
        Search(metric=metric).fit_queries(*random_search())


def test_a_search_over_queries_and_passages():
    queries, candidates, relevance = random_search(queries=120, candidates=130, layers=3, width=12)
    search = Search(metric="ndcg@10", n_resamples=100)
    alone = clone(search).set_params(dev="all").fit_queries(queries, candidates, relevance).selection_
    expected = brute_force(queries, candidates, relevance, "ndcg@10")
    assert alone.chosen.layers == max(expected, key=expected.get)
    assert alone.chosen.dev == pytest.approx(max(expected.values()), abs=1e-12)
    assert alone.last.dev == pytest.approx(expected[2,], abs=1e-12)
    selection = search.fit_queries(queries, candidates, relevance).selection_
    assert (selection.n_choosing, selection.n_reporting, selection.unit) == (60, 60, "queries")
    assert "queries" in str(selection.verdict)
    test, layers = selection.splits[0].test, list(selection.chosen.layers)
    similarities = cosines(queries[test][:, layers].mean(1), candidates[:, layers].mean(1))
    by_query = [naive_query("ndcg@10", row, relevance[n]) for row, n in zip(similarities, test, strict=True)]
    assert selection.chosen.test == pytest.approx(np.mean(by_query))
    assert selection.gain.low <= selection.gain.mean <= selection.gain.high
    assert selection.gain.mean == pytest.approx(selection.chosen.test - selection.last.test)


def test_a_query_that_is_asked_twice_is_on_one_side():
    queries, candidates, relevance = random_search(queries=40)
    texts = [(f"query {number // 2}",) for number in range(40)]
    dev, test = Search(n_resamples=20).fit_queries(queries, candidates, relevance, texts=texts).selection_.splits[0]
    assert not set(dev // 2) & set(test // 2)


def test_retrieval_takes_neither_heads_nor_weights():
    queries, candidates, relevance = random_search()
    with pytest.raises(LayerwiseError, match="A head is searched with pair metrics, not with mrr@10"):
        make_problems({"mean": queries}, {"mean": candidates}, relevance, "mrr@10", head=Head(torch.eye(5)))
    with pytest.raises(InputError, match="not retrieval; search for a set"):
        Search(dev="all", method="weights").fit_queries(queries, candidates, relevance)


def test_views_as_half_precision_tensors():
    queries, candidates, relevance = random_search()
    halves = [torch.from_numpy(side).half() for side in (queries, candidates)]
    doubles = [side.double().numpy() for side in halves]
    assert scanned(*halves, relevance, "mrr@10") == pytest.approx(brute_force(*doubles, relevance, "mrr@10"))
