"""Scores of ranked lists, as trec_eval defines them: reciprocal rank, recall, precision, MAP and NDCG.

A ranking is a row of grades in rank order, padded with zeros: (queries, ranks). A grade above 0 is relevant, and NDCG's
gain is the grade itself.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.metrics.numbers import Numbers

Hits = NDArray[np.integer[Any]]
Relevant = Sequence[Mapping[int, float]]


def without_depth(metric: str) -> str:
    """The metric without its cut-off: mrr@10 is mrr."""
    return metric.partition("@")[0]


def grades_of(hits: Hits, relevant: Relevant) -> Numbers:
    """The grade of every hit, 0 if it is not relevant; hits are padded with -1. (q, ranks) -> (q, ranks)"""
    rows = zip(hits, relevant, strict=True)
    return np.array([[graded.get(int(hit), 0.0) for hit in row] for row, graded in rows]).reshape(hits.shape)


def ranked_scores(hits: Hits, relevant: Relevant, depth: int) -> dict[str, Numbers]:
    """Reciprocal rank, recall and NDCG of each query by its hits, padded with -1. (q, depth) -> (q,)"""
    grades = grades_of(hits, relevant)
    return {
        f"mrr@{depth}": reciprocal_rank(grades, depth),
        f"recall@{depth}": recall(grades, relevant, depth),
        f"ndcg@{depth}": ndcg(grades, relevant, depth),
    }


def reciprocal_rank(grades: Numbers, depth: int) -> Numbers:
    """1 / the rank of the first relevant hit, 0 if there is none. (q, ranks) -> (q,)"""
    is_relevant = grades[:, :depth] > 0
    return np.where(is_relevant.any(1), 1 / (1 + is_relevant.argmax(1)), 0.0)


def recall(grades: Numbers, relevant: Relevant, depth: int) -> Numbers:
    """The share of the relevant passages that are retrieved. (q, ranks) -> (q,)"""
    shares: Numbers = (grades[:, :depth] > 0).sum(1) / np.array([len(graded) for graded in relevant])
    return shares


def precision(grades: Numbers, depth: int) -> Numbers:
    """The share of the top hits that are relevant. (q, ranks) -> (q,)"""
    shares: Numbers = (grades[:, :depth] > 0).sum(1) / depth
    return shares


def average_precision(grades: Numbers, relevant: Relevant, depth: int) -> Numbers:
    """The mean precision at the ranks of all relevant passages, 0 for those not retrieved. (q, ranks) -> (q,)"""
    is_relevant = grades[:, :depth] > 0
    precisions = np.cumsum(is_relevant, axis=1) / np.arange(1, is_relevant.shape[1] + 1)
    means: Numbers = (precisions * is_relevant).sum(1) / np.array([len(graded) for graded in relevant])
    return means


def ndcg(grades: Numbers, relevant: Relevant, depth: int) -> Numbers:
    """The discounted cumulative gain divided by that of the ideal order. (q, ranks) -> (q,)"""
    top = grades[:, :depth]
    gains = top @ (1 / np.log2(np.arange(2, top.shape[1] + 2)))
    ideal = np.array([_ideal_gain(list(graded.values()), depth) for graded in relevant])
    ratios: Numbers = gains / ideal
    return ratios


def _ideal_gain(grades: list[float], depth: int) -> float:
    return sum(grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(grades, reverse=True)[:depth]))


def order_by(similarities: Numbers, ids: Hits) -> Hits:
    """The order of candidates by similarity, with ties broken by the later id, as in trec_eval: (candidates,)

    Args:
        similarities: The similarities of the candidates to the query: (candidates,)
        ids: The rank of each candidate's id among the sorted ids: (candidates,)
    """
    order: Hits = np.lexsort((ids, similarities))[::-1]
    return order


def id_places(ids: Sequence[str]) -> Hits:
    """The rank of each id among the sorted ids: (n,)"""
    return np.argsort(np.argsort(np.array(ids, dtype=object)))
