"""What a query's candidates are worth: which of them are relevant, and the score of the places they come in."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import InputError, LayerwiseError

_NAME = re.compile(r"(mrr|recall|ndcg)@(\d+)")


@dataclass(frozen=True)
class RetrievalMetric:
    """MRR, recall or NDCG at a cut-off.

    >>> RetrievalMetric.parse("ndcg@10")
    RetrievalMetric(kind='ndcg', cutoff=10)
    """

    kind: str
    cutoff: int

    @classmethod
    def parse(cls, name: str) -> "RetrievalMetric | None":
        """Such as `mrr@10`; None where the name is no retrieval metric's."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        if not int(found[2]):
            raise LayerwiseError(f"{name!r}: the cut-off must be 1 or more")
        return cls(found[1], int(found[2]))

    @property
    def name(self) -> str:
        """Such as `mrr@10`."""
        return f"{self.kind}@{self.cutoff}"

    def __call__(self, places: Tensor, grades: Tensor) -> Tensor:
        """Places of the relevant candidates from 1 (infinite: none) and their grades to scores of each query.

        (rows, queries, relevant), (queries, relevant) -> (rows, queries)
        """
        seen = places <= self.cutoff
        if self.kind == "mrr":
            return torch.where(seen, 1 / places, 0.0).amax(-1)
        if self.kind == "recall":
            return (seen & (grades > 0)).sum(-1).double() / (grades > 0).sum(-1)
        gains = torch.where(seen, grades / torch.log2(places + 1), 0.0).sum(-1)
        ideal = grades.sort(dim=-1, descending=True).values[:, : self.cutoff]
        discounts = torch.log2(torch.arange(2, ideal.shape[1] + 2, dtype=ideal.dtype, device=ideal.device))
        return gains / (ideal / discounts).sum(-1)


def read_relevance(relevance: object, queries: int, candidates: int) -> list[dict[int, float]]:
    """For each query its candidates with their grades, after a look at each."""
    if isinstance(relevance, Tensor):
        relevance = relevance.cpu().numpy()
    if not isinstance(relevance, Sequence | np.ndarray) or isinstance(relevance, str):
        raise InputError(f"For each query its relevant candidates are needed, not {relevance!r}")
    rows = list(relevance)
    if len(rows) != queries:
        raise InputError(f"{queries} queries, but relevant candidates for {len(rows)}")
    if queries == 0 or candidates < 2:
        raise InputError(f"{queries} queries and {candidates} candidates are too few to choose layers by")
    matrix = isinstance(relevance, np.ndarray) and relevance.ndim == 2
    found = []
    for number, row in enumerate(rows):
        given = _grades(dict(enumerate(row)) if matrix else row, number)
        if not given or min(given) < 0 or max(given) >= candidates or not np.isfinite(list(given.values())).all():
            raise InputError(f"Query {number} needs candidates of 0 to {candidates - 1} with grades above 0: {row!r}")
        found.append(given)
    return found


def _grades(row: Any, query: int) -> dict[int, float]:
    """Candidates with grades above 0; one that is not a number stays, to be refused."""
    if isinstance(row, Mapping):
        return {int(number): float(grade) for number, grade in row.items() if not grade <= 0}
    numbers = [row] if isinstance(row, int | np.integer) else row
    if not isinstance(numbers, Sequence | np.ndarray | set | frozenset) or not all(
        isinstance(number, int | np.integer) for number in numbers
    ):
        raise InputError(f"Query {query}: its relevant candidates are numbers of candidates, not {row!r}")
    return dict.fromkeys(map(int, numbers), 1.0)
