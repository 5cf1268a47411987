"""Pair classification: average precision, and accuracy and F1 at the best threshold, as in mteb.

Similarities are the cosine, the dot product, and the negative Euclidean and Manhattan distances; `max_…` is the best of
the four.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.kinds.problem import Outcome, RowProblem, Units
from layerwise.kinds.protocol import Protocol
from layerwise.metrics import Numbers, threshold_scores


class PairClassification(RowProblem):
    """Pairs with labels, 0 or 1."""

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:
        """Build from the test rows."""
        require("evaluate", "pair classification", "sklearn")
        problem = super().of(rows, protocol)
        if np.ptp(problem.labels) == 0:
            raise InputError(
                f"task {rows.task.name!r}: all pairs have the label {problem.labels[0]:g}; give pairs of both, 0 and 1"
            )
        return problem

    def pick(self, units: Units) -> Self:
        """Select pairs."""
        picked = super().pick(units)
        if np.ptp(picked.labels) == 0:
            raise InputError(
                f"{len(units)} of {len(self)} pairs all have the label {picked.labels[0]:g}; give more pairs of both, "
                f"0 and 1"
            )
        return picked

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """`<similarity>_ap`, `_accuracy` and `_f1`, and the best of each as `max_…`, × 100."""
        similarities, labels = _similarities(*self.pair_sides(vectors)), self.labels.astype(np.int64)
        by_name = {name: threshold_scores(values, labels) for name, values in similarities.items()}
        figures = {f"{name}_{key}": value for name, scores in by_name.items() for key, value in scores.items()}
        for key in ("ap", "accuracy", "f1"):
            figures[f"max_{key}"] = max(scores[key] for scores in by_name.values())
        best = max(by_name, key=lambda name: by_name[name]["ap"])
        name = self.task.metric.removesuffix("_ap")
        return Outcome(
            {name: 100 * value for name, value in figures.items()},
            items=similarities[best if name == "max" else name].astype(np.float64),
            gold=self.labels.astype(np.float64),
            details={"best": best},
        )


def _similarities(left: Array, right: Array) -> dict[str, Numbers]:
    """The similarities of corresponding rows: (n, d), (n, d) -> (n,) each"""
    from sklearn.metrics.pairwise import (
        paired_cosine_distances,
        paired_euclidean_distances,
        paired_manhattan_distances,
    )

    return {
        "cosine": 1 - paired_cosine_distances(left, right),
        "dot": np.einsum("nd,nd->n", left, right),
        "euclidean": -paired_euclidean_distances(left, right),
        "manhattan": -paired_manhattan_distances(left, right),
    }
