"""Retrieval with graded judgements: every query ranks all passages by cosine.

A task with a corpus is scored as in mteb (`CorpusSearch`), one without among its rows' passages (`PassageSearch`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Task, TaskRows, relevant_passages
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds.problem import Outcome, Problem, Units, unit_vectors
from layerwise.kinds.protocol import Protocol
from layerwise.metrics import (
    average_precision,
    grades_of,
    id_places,
    ndcg,
    order_by,
    precision,
    recall,
    reciprocal_rank,
    without_depth,
)
from layerwise.metrics.rankings import Hits
from layerwise.texts import unique_texts

DEPTH = 1000  # passages of a ranking
_BLOCK = 256  # queries that are compared with the corpus at once


@dataclass(frozen=True, eq=False)
class Retrieval(Problem):
    """Queries and the relevant passages of each, by their place among the passages -> grade.

    Args:
        task: The declaration.
        texts: The unique texts by role.
        queries: The index of each query's text: (q,)
        relevant: The grades of the relevant passages of each query.
    """

    task: Task
    texts: Mapping[str, list[str]]
    queries: NDArray[np.intp]
    relevant: list[Mapping[int, float]]

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> "Retrieval":
        """Build the search in the task's corpus, or in the rows' passages."""
        from layerwise.kinds.passages import PassageSearch

        return PassageSearch.of(rows, protocol) if rows.task.corpus is None else CorpusSearch.of(rows, protocol)

    def __len__(self) -> int:
        return len(self.queries)

    def pick(self, units: Units) -> Self:
        """Select queries, with the whole corpus."""
        return replace(self, queries=self.queries[units], relevant=[self.relevant[row] for row in units])

    @classmethod
    def settings(cls, task: Task, protocol: Protocol) -> dict[str, Any]:
        """How the corpus is searched."""
        if task.corpus is not None:
            return super().settings(task, protocol)
        metric = {} if task.metric == "mrr@10" else {"metric": task.metric}
        return {"protocol": "search", "search": protocol.facts()["search"], **metric}

    @classmethod
    def headline(cls, task: Task, protocol: Protocol) -> str:
        """At the depth of the search."""
        return task.metric if task.corpus is not None else f"{without_depth(task.metric)}@{protocol.search.depth}"


def judged(task: Task, relevant: Mapping[str, Mapping[int, float]]) -> Mapping[str, Mapping[int, float]]:
    """Return the relevant passages by query; raise if there are none."""
    if not relevant:
        raise InputError(f"task {task.name!r} has no row with a label above 0; a query needs a relevant passage")
    return relevant


@dataclass(frozen=True, eq=False)
class CorpusSearch(Retrieval):
    """Exact search in a corpus with ids.

    Args:
        passages: The index of each passage's text: (c,)
        ids: The rank of each passage's id among the sorted ids, which breaks ties: (c,)
    """

    passages: NDArray[np.intp]
    ids: Hits

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:  # noqa: ARG003 - as Problem
        """Build from the test rows with grades above 0; other rows are dropped, as in mteb."""
        tested, places = rows.of_role("test"), {name: place for place, name in enumerate(rows.corpus)}
        names, grades = tested.left_ids or tested.left, tested.labels or [1.0] * len(tested)
        query_texts = dict(zip(names, tested.left, strict=True))
        graded = relevant_passages(zip(names, tested.right_ids, grades, strict=True), places)
        relevant = judged(rows.task, graded)
        queries, (query_rows,) = unique_texts([query_texts[name] for name in relevant])
        documents, (document_rows,) = unique_texts(list(rows.corpus.values()))
        texts = {"query": queries, "document": documents}
        ids = id_places(list(rows.corpus))
        return cls(rows.task, texts, query_rows, list(relevant.values()), document_rows, ids)

    def unit_texts(self) -> list[str]:
        """The queries and their relevant passages."""
        passages = {self.passages[place] for graded in self.relevant for place in graded}
        queries = [self.texts["query"][place] for place in np.unique(self.queries)]
        return queries + [self.texts["document"][place] for place in sorted(passages)]

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
        return Outcome(figures, items=by_query[self.task.metric], details=details)

    def _rank(self, queries: Array, documents: Array) -> Hits:
        """The top passages of each query: (q, depth)"""
        import torch

        depth = min(DEPTH, len(self.passages))
        query_vectors, corpus = unit_vectors(queries)[self.queries], unit_vectors(documents)[self.passages]
        ranked = np.empty((len(query_vectors), depth), dtype=np.intp)
        for start in range(0, len(query_vectors), _BLOCK):
            similarities = query_vectors[start : start + _BLOCK] @ corpus.T
            top = torch.topk(similarities, min(depth + 1, len(corpus)), dim=1)  # one more, as in mteb
            for row, (values, nearest) in enumerate(zip(top.values.numpy(), top.indices.numpy(), strict=True), start):
                ranked[row] = nearest[order_by(values, self.ids[nearest])][:depth]
        return ranked
