"""Graded pairs (sts): correlations of cosine similarity with the grades, over all pairs and by subset.

Papers report three averages of the same similarities: "all" (one correlation over all pairs of a year), the mean of
the subsets' correlations, and that mean weighted by the subsets' sizes ("wmean"). All of them are always computed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Task, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds.problem import Outcome, RowProblem, Units, present
from layerwise.kinds.protocol import Protocol
from layerwise.metrics import Numbers, correlations, cosine


@dataclass(frozen=True, eq=False)
class GradedPairs(RowProblem):
    """Pairs with grades: the rows of the protocol's split, or all rows where "lc" splits them at random."""

    splits_at_random: ClassVar[bool] = True

    subsets: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=object))

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:
        """Build from the scored rows."""
        role = cls.scored(rows.task, rows.splits, protocol)
        scored = rows if role is None else rows.pick(rows.splits[role])
        return cls._of(scored, subsets=np.asarray(scored.subsets, dtype=object))

    def pick(self, units: Units) -> Self:
        """Select pairs."""
        subsets = self.subsets[units] if len(self.subsets) else self.subsets
        return replace(super().pick(units), subsets=subsets)

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """Spearman's and Pearson's correlation × 100, and their averages over subsets."""
        return score_sts(*self.pair_sides(vectors), self.labels, self.subsets)

    @classmethod
    def settings(cls, task: Task, protocol: Protocol) -> dict[str, Any]:  # noqa: ARG003 - as Problem
        """The split; by "lc" the seeds of its random splits."""
        if protocol.name == "lc":
            return {"protocol": "lc", "seeds": list(protocol.seeds)}
        return {"protocol": "sts", "split": protocol.split}

    @classmethod
    def scored(cls, task: Task, roles: Collection[str], protocol: Protocol) -> str | None:
        """The protocol's split, or all rows."""
        if protocol.name == "lc":
            protocol.check_mixable(task)
            return None
        return present(protocol.split, task, roles)

    @classmethod
    def split(cls, task: Task, protocol: Protocol) -> str:
        """As the protocol says."""
        if protocol.name == "lc":
            return "random splits of all rows"
        return protocol.split if task.splits else "all rows"

    @classmethod
    def headline(cls, task: Task, protocol: Protocol) -> str:
        """With the name of the average, where it is not over all pairs."""
        plain = protocol.aggregation == "all" or protocol.name == "lc"
        return task.metric if plain else f"{task.metric}_{protocol.aggregation}"

    @classmethod
    def aggregation(cls, protocol: Protocol) -> str | None:
        """The protocol's."""
        return None if protocol.name == "lc" else protocol.aggregation


def score_sts(left: Numbers, right: Numbers, gold: Numbers, subsets: Sequence[str] | NDArray[Any] = ()) -> Outcome:
    """Compute correlations × 100 of pairs' cosines with their grades: (n, d), (n, d), n grades and optional subsets."""
    grades = np.asarray(gold, dtype=np.float64)
    if not len(left) == len(right) == len(grades):
        raise InputError(f"{len(left)} and {len(right)} embeddings for {len(grades)} scores: the lengths differ")
    if len(grades) < 2 or np.ptp(grades) == 0:
        raise InputError(f"{len(grades)} pairs, {len(np.unique(grades))} different scores: a correlation needs 2")
    if not np.isfinite(grades).all():
        raise InputError(f"score {int(np.flatnonzero(~np.isfinite(grades))[0])} is not a finite number")
    similarities = cosine(left, right)
    overall = correlations(similarities, grades)
    parts, sizes = {}, {}
    names = np.asarray(subsets, dtype=object)
    for name in dict.fromkeys(names.tolist()):
        members = names == name
        parts[name], sizes[name] = correlations(similarities[members], grades[members]), int(members.sum())
    figures = dict(overall)
    for metric, score in overall.items():
        values = [part[metric] for part in parts.values()] or [score]
        figures[f"{metric}_mean"] = float(np.mean(values))
        figures[f"{metric}_wmean"] = float(np.average(values, weights=list(sizes.values()) or [1]))
    details = {"subsets": {name: {**part, "rows": sizes[name]} for name, part in parts.items()}} if parts else {}
    return Outcome(figures, items=similarities, gold=grades, details=details)
