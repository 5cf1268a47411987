"""Predicted classes: accuracy and F1; and means of rows, which resample all that is a mean."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.metrics.numbers import Codes, Numbers


def accuracy(gold: NDArray[Any], predicted: NDArray[Any]) -> float:
    """The share of rows that are predicted correctly. (n,), (n,)"""
    return float((gold == predicted).mean())


def f1_by_class(gold: Codes, predicted: Codes) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """F1 and support of each class that occurs; faster than scikit-learn's `f1_score`, which validates its input."""
    count = int(max(gold.max(), predicted.max())) + 1
    support, n_predicted = np.bincount(gold, minlength=count), np.bincount(predicted, minlength=count)
    true_positives = np.bincount(gold[gold == predicted], minlength=count)
    occurs = support + n_predicted > 0
    return 2 * true_positives[occurs] / (support + n_predicted)[occurs], support[occurs]


def f1_of(gold: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """F1 of the rows that are true; 0 where none is, and none is predicted. (n,), (n,)"""
    count = int(gold.sum()) + int(predicted.sum())
    return 2 * int((gold & predicted).sum()) / count if count else 0.0


def redraw_mean(items: Numbers, gold: Numbers, counts: Numbers) -> Numbers:  # noqa: ARG001 - the interface of `Redraw`
    """The mean of the items on resamples: (rows,), unused, (draws, rows) -> (draws,)"""
    means: Numbers = counts @ items / counts.sum(1)
    return means
