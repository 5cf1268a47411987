"""Metrics of a task's outputs, the overall score of several tasks, and confusion matrices."""

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from layerwise.errors import InputError
from layerwise.metrics import accuracy, f1_of, pearson, spearman
from layerwise.predict import predicted_classes
from layerwise.registry import check_known

Numbers = NDArray[Any]
_CORRELATIONS = ("pearson", "spearman")


def task_metric(kind: str, targets: Numbers, outputs: Numbers) -> float:
    """ "accuracy", "f1", "pearson" or "spearman", from 0 (correlations: -1) to 1. (n,), outputs -> score

    NaN where outputs are NaN; for a correlation also where all targets are equal, or all outputs but for rounding.

    Args:
        kind: The metric. "f1" is that of class 1, and 0 where no row has it and it is never predicted.
        targets: (n,) class numbers or scores.
        outputs: For accuracy and f1 as `predicted_classes` takes them; for a correlation (n,) numbers.
    """
    check_known(kind, tuple(_METRICS), "metric")
    targets, outputs = np.asarray(targets), np.asarray(outputs)
    if targets.ndim != 1 or not len(targets) or len(outputs) != len(targets):
        raise InputError(
            f"targets {targets.shape} and outputs {outputs.shape}: give one output for each target, 1 or more"
        )
    if kind in _CORRELATIONS and outputs.ndim != 1:
        raise InputError(f"outputs {outputs.shape}: {kind} needs one number for each target")
    return nan if np.isnan(outputs).any() else _METRICS[kind](targets, outputs)


def overall(scores: Mapping[str, float]) -> float:
    """The mean of all tasks' scores, a correlation r mapped to (r + 1) / 2; NaN where one is.

    >>> overall({"sst/accuracy": 0.5, "quora/accuracy": 0.8, "sts/pearson": 0.8})
    0.7333333333333334

    Args:
        scores: "task/metric" -> score.
    """
    if not scores:
        raise InputError("no scores to average; give one or more, such as {'sst/accuracy': 0.5}")
    return float(np.mean([_from_zero_to_one(name.rpartition("/")[2], score) for name, score in scores.items()]))


def confusion(targets: Numbers, predicted: Numbers, classes: int) -> NDArray[np.int64]:
    """How often class j (column) was predicted for class i (row). (n,), (n,) -> (classes, classes)"""
    if targets.shape != predicted.shape or targets.ndim != 1:
        raise InputError(f"targets {targets.shape} and predicted {predicted.shape}: give one class number each")
    for name, numbers in (("targets", targets), ("predicted", predicted)):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < classes:
            raise InputError(f"{name}: {numbers.min()} to {numbers.max()} came; {classes} classes are numbered from 0")
    if not len(targets):
        return np.zeros((classes, classes), dtype=np.int64)
    matrix: NDArray[np.int64] = confusion_matrix(targets, predicted, labels=np.arange(classes)).astype(np.int64)
    return matrix


def _from_zero_to_one(metric: str, score: float) -> float:
    check_known(metric, tuple(_METRICS), "metric")
    return (score + 1) / 2 if metric in _CORRELATIONS else score


_METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": lambda targets, outputs: accuracy(targets, predicted_classes(outputs)),
    "f1": lambda targets, outputs: f1_of(targets == 1, predicted_classes(outputs) == 1),
    "pearson": lambda targets, outputs: pearson(outputs, targets),
    "spearman": lambda targets, outputs: spearman(outputs, targets),
}
