"""Graded sentence pairs: the correlation of cosine similarity with the grades."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from layerwise.errors import InputError

_ROUNDING = 1e-12  # similarities that differ by less are equal
Vectors = NDArray[np.floating[Any]]


def cosine(left: Vectors, right: Vectors) -> Vectors:
    """Row by row: (n, d), (n, d) -> (n,), in float64."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    dots, left_squares, right_squares = (np.einsum("nd,nd->n", x, y) for x, y in ((a, b), (a, a), (b, b)))
    lengths = np.sqrt(left_squares * right_squares)  # by one root, so that equal vectors have exactly 1
    similarity: Vectors = dots / np.maximum(lengths, np.finfo(np.float64).tiny)
    if not np.isfinite(similarity).all():
        row = int(np.flatnonzero(~np.isfinite(similarity))[0])
        raise InputError(f"pair {row} has an embedding with NaN or infinite numbers; a score of it would mean nothing")
    return similarity


def flat(similarity: Vectors) -> bool:
    """Whether all pairs are equally similar, but for rounding."""
    return bool(np.ptp(similarity) <= _ROUNDING)


def spearman(left: Vectors, right: Vectors, gold: Vectors) -> float:
    """Spearman's rank correlation of the pairs' cosine with their grades, ties by average ranks.

    NaN where all pairs are equally similar (such as the first token of layer 0, the same in every sentence).
    """
    if not len(left) == len(right) == len(gold):
        raise InputError(f"{len(left)} and {len(right)} embeddings for {len(gold)} scores: the lengths differ")
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise InputError(f"{len(gold)} pairs with {len(set(gold))} different scores: a correlation needs 2 or more")
    if not np.isfinite(gold).all():
        raise InputError(f"score {int(np.flatnonzero(~np.isfinite(gold))[0])} is not a finite number")
    similarity = cosine(left, right)
    return float("nan") if flat(similarity) else float(spearmanr(similarity, gold).statistic)
