"""Reranking: each query ranks its own candidates by cosine; MAP, MRR and NDCG@10, as in mteb."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Task, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds.problem import Outcome, Problem, Units, unit_vectors
from layerwise.kinds.protocol import Protocol
from layerwise.metrics import average_precision, id_places, ndcg, order_by, reciprocal_rank
from layerwise.metrics.rankings import Hits
from layerwise.texts import unique_texts


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of a query: text indices of the query and of the passages, ranks of ids, and grades."""

    query: int
    passages: NDArray[np.intp]
    ids: Hits
    grades: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reranking(Problem):
    """Queries with their candidates; `left_out` queries without relevant or without other candidates are dropped."""

    task: Task
    texts: dict[str, list[str]]
    queries: list[Candidates]
    left_out: int

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:  # noqa: ARG003 - as Problem
        """The problem of the test rows; rows with the same query id, or query without ids, are its candidates."""
        tested = rows.of_role("test")
        queries, (query_rows,) = unique_texts(tested.left)
        documents, (document_rows,) = unique_texts(tested.right)
        grades, ids = np.asarray(tested.labels, dtype=np.float64), id_places(tested.right_ids or tested.right)
        members: dict[str, list[int]] = {}
        for row, name in enumerate(tested.left_ids or tested.left):
            members.setdefault(name, []).append(row)
        lists = [
            Candidates(int(query_rows[rows_of[0]]), document_rows[rows_of], ids[rows_of], grades[rows_of])
            for rows_of in members.values()
        ]
        usable = [query for query in lists if (query.grades > 0).any() and (query.grades <= 0).any()]
        if not usable:
            raise InputError(
                f"task {rows.task.name!r}: no query has both relevant candidates (label above 0) and others; add some"
            )
        return cls(rows.task, {"query": queries, "document": documents}, usable, len(lists) - len(usable))

    def __len__(self) -> int:
        return len(self.queries)

    def pick(self, units: Units) -> Self:
        """Select queries with their candidates."""
        return replace(self, queries=[self.queries[row] for row in units], left_out=0)

    def unit_texts(self) -> list[str]:
        """The queries and their candidates."""
        queries = sorted({query.query for query in self.queries})
        passages = np.unique(np.concatenate([query.passages for query in self.queries]))
        return [self.texts["query"][place] for place in queries] + [self.texts["document"][place] for place in passages]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """MAP, MRR and NDCG@10 × 100."""
        queries, passages = unit_vectors(vectors["query"]), unit_vectors(vectors["document"])
        longest = max(len(query.grades) for query in self.queries)
        grades = np.zeros((len(self.queries), longest))
        for row, query in enumerate(self.queries):
            similarities = (queries[query.query][None] @ passages[query.passages].T)[0].numpy()
            grades[row, : len(query.grades)] = np.maximum(query.grades[order_by(similarities, query.ids)], 0.0)
        relevant = [
            {place: grade for place, grade in enumerate(query.grades.tolist()) if grade > 0} for query in self.queries
        ]
        by_query = {
            "map": average_precision(grades, relevant, longest),
            "mrr": reciprocal_rank(grades, longest),
            "ndcg@10": ndcg(grades, relevant, 10),
        }
        figures = {name: 100 * float(values.mean()) for name, values in by_query.items()}
        details = {"queries": len(self.queries), "left_out": self.left_out}
        return Outcome(figures, items=by_query[self.task.metric], details=details)
