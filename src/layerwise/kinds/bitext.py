"""Bitext mining: each sentence's nearest sentence of the other language should be its translation; F1, as in mteb."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import Array
from layerwise.kinds.problem import Outcome, RowProblem, unit_vectors

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 100  # sentences that are compared with all others at once; as in mteb, as ties depend on it


class Bitext(RowProblem):
    """Sentences and their translations, which are mined among those of the same problem."""

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """F1, precision and accuracy × 100 of the nearest sentences by cosine.

        F1 is scikit-learn's with average="weighted" and one class per sentence: a sentence that is retrieved
        correctly, but also by n other sentences, has the precision 1 / (n + 1).
        """
        sentences = unit_vectors(vectors[""])
        nearest = _nearest(sentences[self.left], sentences[self.right])
        correct = nearest == np.arange(len(nearest))
        retrieved = np.bincount(nearest, minlength=len(nearest))  # at least 1 for a correct sentence
        by_row = {
            "f1": np.where(correct, 2 / (1 + retrieved), 0.0),
            "precision": np.where(correct, 1 / np.maximum(retrieved, 1), 0.0),
            "accuracy": correct.astype(np.float64),
        }
        figures = {name: 100 * float(values.mean()) for name, values in by_row.items()}
        return Outcome(figures, items=by_row[self.task.metric])


def _nearest(left: "Tensor", right: "Tensor") -> NDArray[np.int64]:
    """The index of the nearest row of `right` for each row of `left`. (n, d), (n, d) -> (n,)"""
    import torch

    blocks = [
        torch.topk(left[start : start + _BLOCK] @ right.T, 1, dim=1, sorted=False).indices[:, 0]
        for start in range(0, len(left), _BLOCK)
    ]
    nearest: NDArray[np.int64] = torch.cat(blocks).numpy()
    return nearest
