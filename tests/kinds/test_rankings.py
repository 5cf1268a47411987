"""Reranking and retrieval in a corpus: figures equal a plain sort with ties by id; queries that say nothing go."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import InputError
from layerwise.kinds import prepare
from layerwise.metrics import average_precision
from support.kind_rows import random_vectors, rows_of, score


def cosine(a, b) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def plain(ranked: list[float], relevant: list[float], depth: int) -> dict[str, float]:
    """Figures of one query from its grades in order, and the grades of all that is relevant."""
    top, hits, precisions = ranked[:depth], 0, []
    for place, grade in enumerate(top, 1):
        if grade > 0:
            hits += 1
            precisions.append(hits / place)
    first = next((place for place, grade in enumerate(top, 1) if grade > 0), math.inf)
    ideal = sum(grade / math.log2(place + 1) for place, grade in enumerate(sorted(relevant, reverse=True)[:10], 1))
    gain = sum(grade / math.log2(place + 1) for place, grade in enumerate(ranked[:10], 1))
    return {
        "map": sum(precisions) / len(relevant),
        "mrr": 1 / first,
        "ndcg@10": gain / ideal,
        "recall": hits / len(relevant),
    }


def some_candidates(seed: int, queries: int):
    """Queries with 2 to 14 candidates each, some shared, graded 0 to 2."""
    random = np.random.default_rng(seed)
    rows = []
    for query in range(queries):
        for number in random.choice(20, random.integers(2, 15), replace=False):
            rows.append((f"q{query}", f"d{number}", float(random.integers(0, 3))))
    return rows


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_reranking_is_a_plain_sort(seed, queries):
    rows = some_candidates(seed, queries)
    left, right, labels = (list(column) for column in zip(*rows, strict=True))
    by_query = {name: [(d, grade) for q, d, grade in rows if q == name] for name in dict.fromkeys(left)}
    useful = {name: some for name, some in by_query.items() if len({grade > 0 for _, grade in some}) == 2}
    task_rows = rows_of("reranking", left, right, labels)
    if not useful:
        with pytest.raises(InputError, match="no query has both relevant candidates"):
            prepare(task_rows)
        return
    vectors = random_vectors(left + right, seed=seed)
    outcome = score(prepare(task_rows), vectors)
    expected = []
    for name, some in useful.items():
        ranked = [grade for _, grade in sorted(some, key=lambda one: -cosine(vectors[name], vectors[one[0]]))]
        expected.append(plain(ranked, [grade for grade in ranked if grade > 0], len(ranked)))
    for key in ("map", "mrr", "ndcg@10"):
        assert outcome.figures[key] == pytest.approx(100 * np.mean([one[key] for one in expected])), key
    assert outcome.items == pytest.approx([one["map"] for one in expected])
    assert outcome.details == {"queries": len(useful), "left_out": len(by_query) - len(useful)}


@pytest.mark.parametrize(("ids", "first"), [(["1", "2"], 0.5), (["2", "1"], 1.0), (["10", "9"], 0.5)])
def test_ties_go_to_the_later_id_as_trec_eval_has_it(ids, first):
    rows = rows_of("reranking", ["q", "q"], ["same", "same too"], [1.0, 0.0], right_ids=ids, metric="mrr")
    vectors = {"q": np.ones(3), "same": np.ones(3), "same too": np.ones(3)}
    assert score(prepare(rows), vectors).items.tolist() == [first]


def test_queries_of_one_text_are_told_apart_by_their_ids():
    rows = rows_of("reranking", ["q"] * 4, ["a", "b", "a", "c"], [1.0, 0.0, 0.0, 1.0], left_ids=["1", "1", "2", "2"])
    problem = prepare(rows)
    assert (len(problem.queries), problem.texts["query"]) == (2, ["q"])


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 40))
def test_a_search_in_a_corpus_is_a_plain_sort(seed, queries, passages):
    random = np.random.default_rng(seed)
    corpus = {f"id{n}": f"passage {n % 30}" for n in range(passages)}  # some texts come twice
    judged = [(f"q{q}", f"id{p}", float(random.integers(0, 4))) for q in range(queries) for p in range(0, passages, 3)]
    judged.append(("q0", "id0", 1.0))
    names, ids, labels = (list(column) for column in zip(*judged, strict=True))
    rows = rows_of(
        "retrieval", names, [corpus[name] for name in ids], labels, right_ids=ids, corpus=corpus, metric="ndcg@10"
    )
    vectors = random_vectors([*names, *corpus.values()], seed=seed)
    outcome = score(prepare(rows), vectors)
    expected = []
    for name in dict.fromkeys(names):
        grades = {p: grade for q, p, grade in judged if q == name and grade > 0}
        if grades:
            order = sorted(corpus, key=lambda p: (round(cosine(vectors[name], vectors[corpus[p]]), 6), p), reverse=True)
            expected.append(plain([grades.get(p, 0.0) for p in order], list(grades.values()), 10))
    figures = {"ndcg@10": "ndcg@10", "mrr": "mrr@10", "recall": "recall@10"}
    for key, figure in figures.items():
        assert outcome.figures[figure] == pytest.approx(100 * np.mean([one[key] for one in expected])), key
    assert sorted(outcome.items) == pytest.approx(sorted(one["ndcg@10"] for one in expected))
    assert outcome.details == {"queries": len(expected), "corpus": passages}


def test_queries_and_passages_have_their_roles():
    rows = rows_of(
        "retrieval", ["why?"], ["because"], [1.0], right_ids=["b"], corpus={"a": "no", "b": "because", "c": "no"}
    )
    assert prepare(rows).texts == {"query": ["why?"], "document": ["no", "because"]}


def test_a_corpus_without_relevant_passages_is_refused():
    rows = rows_of("retrieval", ["why?"], ["because"], [0.0], right_ids=["b"], corpus={"b": "because"})
    with pytest.raises(InputError, match=r"^task 'rows' has no row with a label above 0; a query needs"):
        prepare(rows)


def test_what_is_not_found_has_no_precision():
    assert average_precision(np.array([[0.0, 1.0]]), [{7: 1.0, 8: 1.0}], 2).tolist() == [0.25]
