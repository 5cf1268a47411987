"""Pair classification: average precision, and accuracy and F1 at the best threshold, as in mteb.

Similarities are the cosine, the dot product, and the negative Euclidean and Manhattan distances; `max_…` is the best of
the four.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.kinds.problem import Figures, Numbers, Outcome, Redraw, Units


def redraw_average_precision(similarities: Numbers, labels: Numbers, counts: Numbers) -> Numbers:
    """Average precision on resamples, with ties: (pairs,), (pairs,), (draws, pairs) -> (draws,)"""
    order = np.argsort(-similarities, kind="stable")
    ordered, drawn = similarities[order], counts[:, order]
    ends = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])
    hits = np.cumsum(drawn * labels[order], axis=1)[:, ends]
    retrieved = np.maximum(np.cumsum(drawn, axis=1)[:, ends], 1)  # a resample may lack the first pairs
    new_hits = np.diff(hits, axis=1, prepend=0)
    with np.errstate(invalid="ignore"):  # NaN for a resample without positive pairs
        scores: Numbers = (new_hits * hits / retrieved).sum(1) / hits[:, -1]
    return scores


@dataclass(frozen=True, eq=False)
class PairClassification:
    """Left and right texts as indices of the texts, and the pairs' labels, 0 or 1."""

    unit: ClassVar[str] = "pairs"
    redraws: ClassVar[Mapping[str, Redraw]] = dict.fromkeys(
        (f"{name}_ap" for name in ("max", "cosine", "dot", "euclidean", "manhattan")),
        redraw_average_precision,
    )

    texts: dict[str, list[str]]
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    labels: NDArray[np.int64]
    metric: str

    @classmethod
    def of(cls, rows: TaskRows) -> "PairClassification":
        """The problem of the test rows."""
        require("evaluate", "pair classification", "sklearn")
        tested = rows.of_role("test")
        left, right = tested.positions()
        assert right is not None  # noqa: S101 - a task of pairs
        labels = np.asarray(tested.labels, dtype=np.int64)
        if np.ptp(labels) == 0:
            raise InputError(
                f"task {rows.task.name!r}: all pairs have the label {labels[0]}; give pairs of both, 0 and 1"
            )
        return cls({"": tested.texts}, left, right, labels, rows.task.metric)

    def __len__(self) -> int:
        return len(self.left)

    def pick(self, units: Units) -> "PairClassification":
        """Select pairs."""
        labels = self.labels[units]
        if np.ptp(labels) == 0:
            raise InputError(
                f"{len(units)} of {len(self)} pairs all have the label {labels[0]}; give more pairs of both, 0 and 1"
            )
        return replace(self, left=self.left[units], right=self.right[units], labels=labels)

    def unit_texts(self) -> list[str]:
        """The texts of both sides."""
        return [self.texts[""][place] for place in np.union1d(self.left, self.right)]

    def reseeded(self, count: int) -> list["PairClassification"]:  # noqa: ARG002 - as Divisible
        """Return only itself, as nothing is random."""
        return [self]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """`<similarity>_ap`, `_accuracy` and `_f1`, and the best of each as `max_…`, × 100."""
        similarities = _similarities(vectors[""][self.left], vectors[""][self.right])
        by_name = {name: threshold_scores(values, self.labels) for name, values in similarities.items()}
        figures = {f"{name}_{key}": value for name, scores in by_name.items() for key, value in scores.items()}
        for key in ("ap", "accuracy", "f1"):
            figures[f"max_{key}"] = max(scores[key] for scores in by_name.values())
        best = max(by_name, key=lambda name: by_name[name]["ap"])
        items = similarities[best if self.metric == "max_ap" else self.metric.removesuffix("_ap")]
        return Outcome(
            {name: 100 * value for name, value in figures.items()},
            items=items.astype(np.float64),
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


def threshold_scores(similarities: Numbers, labels: NDArray[np.int64]) -> Figures:
    """Average precision, and accuracy and F1 at their best thresholds. (n,), (n,)

    A threshold lies between two different similarities: pairs above it are predicted positive, but never all pairs.
    """
    from sklearn.metrics import average_precision_score

    order = np.argsort(-similarities, kind="stable")
    ordered, hits = similarities[order], np.cumsum(labels[order])
    above = np.flatnonzero(ordered[:-1] != ordered[1:])  # the last pair above each threshold
    true_positives, count, positives = hits[above], above + 1, int(labels.sum())
    accuracies = (2 * true_positives - count + len(labels) - positives) / len(labels)
    f1 = 2 * true_positives / (count + positives)
    return {
        "ap": float(average_precision_score(labels, similarities)),
        "accuracy": float(accuracies.max(initial=0.0)),
        "f1": float(f1.max(initial=0.0)),
    }
