"""Similarities of pairs with labels 0 and 1: average precision, and accuracy and F1 at the best threshold."""

import numpy as np
from numpy.typing import NDArray

from layerwise.metrics.numbers import Figures, Numbers


def threshold_scores(similarities: Numbers, labels: NDArray[np.int64]) -> Figures:
    """Average precision (`ap`), and accuracy and F1 at their best thresholds. (n,), (n,)

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
