"""Metrics of a task's outputs, the overall score of several tasks, and confusion matrices."""

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from layerwise.errors import InputError
from layerwise.predict import predicted_classes
from layerwise.registry import check_known

Numbers = NDArray[Any]
_CORRELATIONS = ("pearson", "spearman")
_ROUNDING = 1e-6  # relative, of float32: outputs that differ by less count as equal


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


def _accuracy(targets: Numbers, outputs: Numbers) -> float:
    return float(accuracy_score(targets, predicted_classes(outputs)))


def _f1(targets: Numbers, outputs: Numbers) -> float:
    return float(f1_score(targets == 1, predicted_classes(outputs) == 1, zero_division=0))


def _pearson(targets: Numbers, outputs: Numbers) -> float:
    return nan if _is_constant(targets, outputs) else float(pearsonr(targets, outputs.astype(np.float64)).statistic)


def _spearman(targets: Numbers, outputs: Numbers) -> float:
    return nan if _is_constant(targets, outputs) else float(spearmanr(targets, outputs).statistic)


def _is_constant(targets: Numbers, outputs: Numbers) -> bool:
    """Whether the correlation is undefined; rounding errors must not be ranked."""
    if not np.isfinite(outputs).all():
        return True
    return bool(np.ptp(targets) == 0 or np.ptp(outputs) <= _ROUNDING * np.abs(outputs).max())


_METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "pearson": _pearson,
    "spearman": _spearman,
}
