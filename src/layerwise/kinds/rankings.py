"""Scores of ranked lists, as trec_eval defines them: reciprocal rank, recall, precision, MAP and NDCG.

A ranking is a row of grades, best place first, padded with zeros: (queries, places). A grade above 0 is relevant, and
NDCG's gain is the grade itself.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import Array

Numbers = NDArray[np.floating[Any]]
Hits = NDArray[np.integer[Any]]
Relevant = Sequence[Mapping[int, float]]


def grades_of(hits: Hits, relevant: Relevant) -> Numbers:
    """The grade of every hit, 0 where it is not relevant; -1 is no hit. (q, places) -> (q, places)"""
    rows = zip(hits, relevant, strict=True)
    return np.array([[graded.get(int(hit), 0.0) for hit in row] for row, graded in rows]).reshape(hits.shape)


def ranked_scores(hits: Hits, relevant: Relevant, depth: int) -> dict[str, Numbers]:
    """Reciprocal rank, recall and NDCG of each query by its hits, best first; -1 is none. (q, depth) -> (q,)"""
    grades = grades_of(hits, relevant)
    return {
        f"mrr@{depth}": reciprocal_rank(grades, depth),
        f"recall@{depth}": recall(grades, relevant, depth),
        f"ndcg@{depth}": ndcg(grades, relevant, depth),
    }


def reciprocal_rank(grades: Numbers, depth: int) -> Numbers:
    """1 / the first relevant place, 0 where none is relevant. (q, places) -> (q,)"""
    right = grades[:, :depth] > 0
    return np.where(right.any(1), 1 / (1 + right.argmax(1)), 0.0)


def recall(grades: Numbers, relevant: Relevant, depth: int) -> Numbers:
    """The share of the relevant passages that are found. (q, places) -> (q,)"""
    shares: Numbers = (grades[:, :depth] > 0).sum(1) / np.array([len(graded) for graded in relevant])
    return shares


def precision(grades: Numbers, depth: int) -> Numbers:
    """The share of the first places that are relevant. (q, places) -> (q,)"""
    shares: Numbers = (grades[:, :depth] > 0).sum(1) / depth
    return shares


def average_precision(grades: Numbers, relevant: Relevant, depth: int) -> Numbers:
    """The mean precision at the places of all relevant passages, 0 for those not found. (q, places) -> (q,)"""
    right = grades[:, :depth] > 0
    at_place = np.cumsum(right, axis=1) / np.arange(1, right.shape[1] + 1)
    means: Numbers = (at_place * right).sum(1) / np.array([len(graded) for graded in relevant])
    return means


def ndcg(grades: Numbers, relevant: Relevant, depth: int) -> Numbers:
    """The discounted gain against that of the best possible order. (q, places) -> (q,)"""
    shown = grades[:, :depth]
    gains = shown @ (1 / np.log2(np.arange(2, shown.shape[1] + 2)))
    ideal = np.array([_ideal_gain(list(graded.values()), depth) for graded in relevant])
    ratios: Numbers = gains / ideal
    return ratios


def _ideal_gain(grades: list[float], depth: int) -> float:
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(sorted(grades, reverse=True)[:depth]))


def unit(vectors: Array) -> Tensor:
    """Rows of length 1, in float32."""
    rows = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    return torch.nn.functional.normalize(rows, p=2, dim=1)


def order_by(similarities: Numbers, ids: Hits) -> Hits:
    """Candidates by similarity, ties by the later id, as trec_eval breaks them: (candidates,) twice -> (candidates,)

    Args:
        similarities: Of the candidates to the query.
        ids: Each candidate's place among the sorted ids.
    """
    order: Hits = np.lexsort((ids, similarities))[::-1]
    return order


def id_places(ids: Sequence[str]) -> Hits:
    """Each id's place among the sorted ids. (n,)"""
    return np.argsort(np.argsort(np.array(ids, dtype=object)))
