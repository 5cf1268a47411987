"""Retrieval: which layers rank a query's relevant candidates highest.

Metrics depend only on the ranks of the relevant candidates, which are counted (how many candidates are more similar?)
instead of sorted. Queries are processed in blocks to bound memory; each block scans the whole space, and the blocks'
scores are added.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError, LayerwiseError
from layerwise.search.forms import Halves, symmetric, triangle, weighted
from layerwise.search.problems import Progress, Scores, no_progress, scan
from layerwise.search.sources import (
    Grams,
    Piece,
    Views,
    Walk,
    as_float64,
    lower_bits,
    plain_sweep,
    too_sparse,
    upper_sets,
    walk_halves,
)
from layerwise.search.spaces import Masks, Space

_NAME = re.compile(r"(mrr|recall|ndcg)@(\d+)")
_ITEMS = 2**15  # query-candidate pairs in a block of queries
_STEPS = 2.0**40  # similarities closer than 1 / this are equal; then the earlier candidate comes first
_CHUNK_ROWS = 64  # sets that are scored at once
_CANCELLED = 1e-14  # a squared length, relative to the layers', below which it is rounding error


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
        """Parse a name such as `mrr@10`; None for the name of another metric."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        if not int(match[2]):
            raise LayerwiseError(f"{name!r}: the cut-off must be 1 or more")
        return cls(match[1], int(match[2]))

    @property
    def name(self) -> str:
        """Such as `mrr@10`."""
        return f"{self.kind}@{self.cutoff}"

    def __call__(self, ranks: Tensor, grades: Tensor) -> Tensor:
        """Scores of each query from the ranks of its relevant candidates (from 1, infinite for padding) and grades.

        (rows, queries, relevant), (queries, relevant) -> (rows, queries)
        """
        retrieved = ranks <= self.cutoff
        if self.kind == "mrr":
            return torch.where(retrieved, 1 / ranks, 0.0).amax(-1)
        if self.kind == "recall":
            return (retrieved & (grades > 0)).sum(-1).double() / (grades > 0).sum(-1)
        gains = torch.where(retrieved, grades / torch.log2(ranks + 1), 0.0).sum(-1)
        ideal = grades.sort(dim=-1, descending=True).values[:, : self.cutoff]
        discounts = torch.log2(torch.arange(2, ideal.shape[1] + 2, dtype=ideal.dtype, device=ideal.device))
        return gains / (ideal / discounts).sum(-1)


@dataclass(frozen=True)
class RetrievalProblem:
    """Queries, candidates, and the relevant candidates of each query."""

    scans_fast: ClassVar[bool] = True
    starts: ClassVar[int] = 1
    is_mean: ClassVar[bool] = True

    queries: Tensor  # (queries, layers, width), float64
    candidates: Tensor
    relevant: Tensor  # (queries, max relevant): indices of candidates, padded with -1
    grades: Tensor  # same shape, padded with 0
    metric: RetrievalMetric

    @classmethod
    def of(
        cls,
        queries: Views,
        candidates: Views,
        relevance: object,
        metric: RetrievalMetric,
        *,
        device: torch.device | str = "cpu",
    ) -> "RetrievalProblem":
        """From views of both sides. `relevance`: for each query the index of its candidate, a list of indices, or a
        mapping from them to grades; or a matrix (queries, candidates) of grades.
        """
        for views in (queries, candidates):
            if views.ndim != 3:
                raise InputError(f"Views have the shape (sentences, layers, width), not {tuple(views.shape)}")
        if queries.shape[1:] != candidates.shape[1:]:
            raise InputError(f"Queries and candidates differ: {tuple(queries.shape)} and {tuple(candidates.shape)}")
        grades = read_relevance(relevance, len(queries), len(candidates))
        max_relevant = max(map(len, grades))
        relevant = torch.full((len(grades), max_relevant), -1)
        values = torch.zeros(len(grades), max_relevant, dtype=torch.float64)
        for row, graded in enumerate(grades):
            relevant[row, : len(graded)] = torch.tensor(list(graded))
            values[row, : len(graded)] = torch.tensor(list(graded.values()), dtype=torch.float64)
        a, b = (as_float64(views, device) for views in (queries, candidates))
        for side in (a, b):
            if not bool(torch.isfinite(side).all()):
                raise InputError("The views hold NaN or infinite numbers")
        return cls(a, b, relevant.to(device), values.to(device), metric)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.queries.shape[1])

    @property
    def device(self) -> torch.device:
        """The device of the views."""
        return self.queries.device

    def __len__(self) -> int:
        return len(self.queries)

    def pick(self, rows: NDArray[np.integer[Any]]) -> "RetrievalProblem":
        """The problem on a subset of the queries, with all candidates."""
        picked = torch.from_numpy(np.asarray(rows)).to(self.device)
        return replace(self, queries=self.queries[picked], relevant=self.relevant[picked], grades=self.grades[picked])

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Score every set of a space, block by block of queries; progress counts the sets of the last block."""
        total: Scores = np.zeros(0)
        masks: Masks = np.zeros(0, dtype=np.uint64)
        blocks = list(self._blocks())
        for number, block in enumerate(blocks, start=1):
            callback = progress if number == len(blocks) else no_progress
            masks, scores = scan(block, block.total, space, progress=callback)
            total = scores if number == 1 else total + scores
        return masks, total / len(self)

    def check(self) -> None:
        """Do nothing: every query has a relevant candidate."""

    def scores(self, weights: NDArray[np.floating[Any]]) -> Scores:
        """Scores of any weights or sets: (rows, layers) -> (rows,)"""
        scores: Scores = self._by_query(weights).mean(1)
        return scores

    def redrawn(self, weights: NDArray[np.floating[Any]], draws: Sequence[NDArray[np.integer[Any]]]) -> Scores:
        """Scores on resamples of the queries: (rows, layers), draws of queries -> (draws, rows)"""
        by_query = self._by_query(weights)
        undefined = np.full(len(by_query), np.nan)  # for a resample without any of the queries
        return np.stack([by_query[:, draw].mean(1) if len(draw) else undefined for draw in draws])

    def _by_query(self, weights: NDArray[np.floating[Any]]) -> Scores:
        rows = torch.from_numpy(np.asarray(weights, dtype=np.float64)).to(self.device)
        return torch.cat([block.scores(rows) for block in self._blocks()], dim=1).cpu().numpy()

    def _blocks(self) -> Iterator["QueryBlock"]:
        size = max(1, _ITEMS // len(self.candidates))
        for start in range(0, len(self), size):
            part = self.pick(np.arange(start, min(start + size, len(self))))
            yield QueryBlock.of(part.queries, part.candidates, part.relevant, part.grades, self.metric)


@dataclass(frozen=True)
class QueryBlock(Grams):
    """A block of queries with all candidates, as Gram matrices: query-candidate pairs, then queries, then candidates.

    (queries x candidates + queries + candidates, layers, layers)
    """

    relevant: Tensor
    grades: Tensor
    metric: RetrievalMetric
    candidates: int

    @classmethod
    def of(
        cls, queries: Tensor, candidates: Tensor, relevant: Tensor, grades: Tensor, metric: RetrievalMetric
    ) -> "QueryBlock":
        """From views."""
        cross = torch.einsum("qlw,cmw->qclm", queries, candidates)
        parts = [symmetric(cross).flatten(0, 1), queries @ queries.mT, candidates @ candidates.mT]
        return cls(torch.cat(parts), relevant, grades, metric, len(candidates))

    def similarities(self, weights: Tensor) -> Tensor:
        """Quadratic forms for any weights, from which `by_query` computes scores."""
        return weighted(weights.to(self.grams), triangle(self.grams))

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of a space, by `Halves`."""
        forced, free = space.bits(self.layers)
        if too_sparse(space, self.layers):
            yield from plain_sweep(self, space, rows=_CHUNK_ROWS)
            return
        lower = free[: lower_bits(len(self.grams), len(free), self.device)]
        halves = Halves.of(self.grams, (*forced, *free[len(lower) :]), lower)
        walk: Callable[..., Iterator[Piece]] = walk_halves
        for uppers in upper_sets(len(free) - len(lower)):
            yield partial(walk, halves, uppers, len(forced), space)

    def scores(self, weights: Tensor) -> Tensor:
        """Each query's score for any weights: (rows, layers) -> (rows, queries)"""
        return torch.cat([self.by_query(self.similarities(part)) for part in torch.split(weights, _CHUNK_ROWS)])

    def total(self, forms: Tensor) -> Tensor:
        """The sum over the queries: (rows, items) -> (rows,)"""
        return self.by_query(forms).sum(1)

    def by_query(self, forms: Tensor) -> Tensor:
        """Each query's score: (rows, items) -> (rows, queries)"""
        queries, pairs = len(self.relevant), len(self.relevant) * self.candidates
        squares, longest = forms[:, pairs:], self.grams[pairs:].diagonal(dim1=-2, dim2=-1).sum(-1)
        lengths = torch.where(
            squares > _CANCELLED * longest, squares, torch.inf
        ).sqrt()  # similarity 0 to a zero vector
        similarities = forms[:, :pairs].reshape(len(forms), queries, self.candidates)
        similarities = similarities / lengths[:, :queries, None] / lengths[:, None, queries:]
        return self.metric(self._ranks((similarities * _STEPS).round_()), self.grades)

    def _ranks(self, similarities: Tensor) -> Tensor:
        """The ranks of relevant candidates, from 1: (rows, queries, candidates) -> (rows, queries, relevant)"""
        numbers = torch.arange(self.candidates, device=similarities.device)
        ranks = []
        for relevant in self.relevant.T:
            index = relevant.clamp_min(0)[None, :, None].expand(len(similarities), -1, 1)
            scores = similarities.gather(2, index)
            ahead = (similarities > scores) | ((similarities == scores) & (numbers < relevant[:, None]))
            rank = (1 + ahead.sum(-1)).double()
            ranks.append(torch.where(relevant >= 0, rank, torch.inf))
        return torch.stack(ranks, dim=-1)


def read_relevance(relevance: object, queries: int, candidates: int) -> list[dict[int, float]]:
    """Check relevance and convert it to a mapping from candidates to grades for each query."""
    if isinstance(relevance, Tensor):
        relevance = relevance.cpu().numpy()
    if not isinstance(relevance, Sequence | np.ndarray) or isinstance(relevance, str):
        raise InputError(f"For each query its relevant candidates are needed, not {relevance!r}")
    rows = list(relevance)
    if len(rows) != queries:
        raise InputError(f"{queries} queries, but relevant candidates for {len(rows)}")
    if queries == 0 or candidates < 2:
        raise InputError(f"{queries} queries and {candidates} candidates are too few to choose layers by")
    is_matrix = isinstance(relevance, np.ndarray) and relevance.ndim == 2
    checked = []
    for number, row in enumerate(rows):
        graded = _grades(dict(enumerate(row)) if is_matrix else row, number)
        if not graded or min(graded) < 0 or max(graded) >= candidates or not np.isfinite(list(graded.values())).all():
            raise InputError(f"Query {number} needs candidates of 0 to {candidates - 1} with grades above 0: {row!r}")
        checked.append(graded)
    return checked


def _grades(row: Any, query: int) -> dict[int, float]:
    """Candidates with grades above 0; NaN grades are kept, for the caller refuses them."""
    if isinstance(row, Mapping):
        return {int(number): float(grade) for number, grade in row.items() if not grade <= 0}
    numbers = [row] if isinstance(row, int | np.integer) else row
    if not isinstance(numbers, Sequence | np.ndarray | set | frozenset) or not all(
        isinstance(number, int | np.integer) for number in numbers
    ):
        raise InputError(f"Query {query}: its relevant candidates are numbers of candidates, not {row!r}")
    return dict.fromkeys(map(int, numbers), 1.0)
