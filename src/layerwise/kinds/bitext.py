"""Bitext mining: each sentence's nearest sentence of the other language should be its translation; F1, as in mteb."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.kinds.problem import Outcome, Redraw, Units, redraw_mean
from layerwise.kinds.rankings import unit

_BLOCK = 100  # sentences that are compared with all others at once; as in mteb, as ties depend on it


@dataclass(frozen=True, eq=False)
class Bitext:
    """Left and right sentences as indices of the texts; row i of one side is the translation of row i of the other."""

    unit: ClassVar[str] = "pairs"
    redraws: ClassVar[Mapping[str, Redraw]] = dict.fromkeys(("f1", "accuracy"), redraw_mean)

    texts: dict[str, list[str]]
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    metric: str

    @classmethod
    def of(cls, rows: TaskRows) -> "Bitext":
        """The problem of the test rows."""
        tested = rows.of_role("test")
        left, right = tested.positions()
        assert right is not None  # noqa: S101 - a task of pairs
        return cls({"": tested.texts}, left, right, rows.task.metric)

    def __len__(self) -> int:
        return len(self.left)

    def pick(self, units: Units) -> "Bitext":
        """Select pairs, which are mined among themselves."""
        return replace(self, left=self.left[units], right=self.right[units])

    def unit_texts(self) -> list[str]:
        """The sentences of both sides."""
        return [self.texts[""][place] for place in np.union1d(self.left, self.right)]

    def reseeded(self, count: int) -> list["Bitext"]:  # noqa: ARG002 - as Divisible
        """Return only itself, as nothing is random."""
        return [self]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """F1, precision and accuracy × 100 of the nearest sentences by cosine.

        F1 is scikit-learn's with average="weighted" and one class per sentence: a sentence that is retrieved
        correctly, but also by n other sentences, has the precision 1 / (n + 1).
        """
        sentences = unit(vectors[""])
        nearest = _nearest(sentences[self.left], sentences[self.right])
        correct = nearest == np.arange(len(nearest))
        retrieved = np.bincount(nearest, minlength=len(nearest))  # at least 1 for a correct sentence
        by_row = {
            "f1": np.where(correct, 2 / (1 + retrieved), 0.0),
            "precision": np.where(correct, 1 / np.maximum(retrieved, 1), 0.0),
            "accuracy": correct.astype(np.float64),
        }
        figures = {name: 100 * float(values.mean()) for name, values in by_row.items()}
        return Outcome(figures, items=by_row[self.metric])


def _nearest(left: torch.Tensor, right: torch.Tensor) -> NDArray[np.int64]:
    """The index of the nearest row of `right` for each row of `left`. (n, d), (n, d) -> (n,)"""
    blocks = [
        torch.topk(left[start : start + _BLOCK] @ right.T, 1, dim=1, sorted=False).indices[:, 0]
        for start in range(0, len(left), _BLOCK)
    ]
    nearest: NDArray[np.int64] = torch.cat(blocks).numpy()
    return nearest
