"""Retrieval in a corpus with graded judgements: every query ranks all passages by cosine, as in mteb."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds.problem import Outcome, Redraw, Units, redraw_mean
from layerwise.kinds.rankings import (
    Hits,
    average_precision,
    grades_of,
    id_places,
    ndcg,
    order_by,
    precision,
    recall,
    reciprocal_rank,
    unit,
)
from layerwise.texts import unique_texts

DEPTH = 1000  # passages of a ranking
_BLOCK = 256  # queries that are compared with the corpus at once


@dataclass(frozen=True, eq=False)
class CorpusSearch:
    """Queries and passages as indices of the texts of their role.

    Args:
        texts: The unique texts of the roles "query" and "document".
        queries: The index of each query's text: (q,)
        passages: The index of each passage's text: (c,)
        ids: The rank of each passage's id among the sorted ids, which breaks ties: (c,)
        relevant: The grades of the relevant passages of each query.
        metric: The name of the main figure.
    """

    unit: ClassVar[str] = "queries"
    redraws: ClassVar[Mapping[str, Redraw]] = dict.fromkeys(("mrr", "ndcg", "recall"), redraw_mean)

    texts: dict[str, list[str]]
    queries: NDArray[np.intp]
    passages: NDArray[np.intp]
    ids: Hits
    relevant: list[dict[int, float]]
    metric: str

    @classmethod
    def of(cls, rows: TaskRows) -> "CorpusSearch":
        """The problem of the test rows with grades above 0; other rows are dropped, as in mteb."""
        tested, places = rows.of_role("test"), {name: place for place, name in enumerate(rows.corpus)}
        query_texts: dict[str, str] = {}
        relevant: dict[str, dict[int, float]] = {}
        names = tested.left_ids or tested.left
        grades = tested.labels or [1.0] * len(tested)
        for name, query, passage, grade in zip(names, tested.left, tested.right_ids, grades, strict=True):
            if grade > 0:
                query_texts[name] = query
                relevant.setdefault(name, {})[places[passage]] = grade
        if not relevant:
            raise InputError(
                f"task {rows.task.name!r} has no row with a label above 0; a query needs a relevant passage"
            )
        queries, (query_rows,) = unique_texts(list(query_texts.values()))
        documents, (document_rows,) = unique_texts(list(rows.corpus.values()))
        texts = {"query": queries, "document": documents}
        return cls(
            texts, query_rows, document_rows, id_places(list(rows.corpus)), list(relevant.values()), rows.task.metric
        )

    def __len__(self) -> int:
        return len(self.queries)

    def pick(self, units: Units) -> "CorpusSearch":
        """Select queries, with the whole corpus."""
        return replace(self, queries=self.queries[units], relevant=[self.relevant[unit] for unit in units])

    def unit_texts(self) -> list[str]:
        """The queries and their relevant passages."""
        passages = {self.passages[place] for graded in self.relevant for place in graded}
        queries = [self.texts["query"][place] for place in np.unique(self.queries)]
        return queries + [self.texts["document"][place] for place in sorted(passages)]

    def reseeded(self, count: int) -> list["CorpusSearch"]:  # noqa: ARG002 - as Divisible
        """Return only itself, as nothing is random."""
        return [self]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """NDCG, MRR, recall, precision and MAP × 100, by exact search."""
        grades = grades_of(self._rank(vectors["query"], vectors["document"]), self.relevant)
        by_query = {
            "ndcg@10": ndcg(grades, self.relevant, 10),
            "mrr@10": reciprocal_rank(grades, 10),
            "recall@10": recall(grades, self.relevant, 10),
            "recall@100": recall(grades, self.relevant, 100),
            "precision@10": precision(grades, 10),
            f"map@{DEPTH}": average_precision(grades, self.relevant, DEPTH),
        }
        figures = {name: 100 * float(values.mean()) for name, values in by_query.items()}
        details = {"queries": len(self.queries), "corpus": len(self.passages)}
        return Outcome(figures, items=by_query[self.metric], details=details)

    def _rank(self, queries: Array, documents: Array) -> Hits:
        """The top passages of each query: (q, depth)"""
        depth = min(DEPTH, len(self.passages))
        query_vectors, corpus = unit(queries)[self.queries], unit(documents)[self.passages]
        ranked = np.empty((len(query_vectors), depth), dtype=np.intp)
        for start in range(0, len(query_vectors), _BLOCK):
            similarities = query_vectors[start : start + _BLOCK] @ corpus.T
            top = torch.topk(similarities, min(depth + 1, len(corpus)), dim=1)  # one more, as in mteb
            for row, (values, nearest) in enumerate(zip(top.values.numpy(), top.indices.numpy(), strict=True), start):
                ranked[row] = nearest[order_by(values, self.ids[nearest])][:depth]
        return ranked
