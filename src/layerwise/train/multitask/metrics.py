"""Scores of a task's outputs, all tasks' scores as one, and which classes are taken for which."""

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.registry import check_known

Numbers = NDArray[Any]
_CORRELATIONS = ("pearson", "spearman")
_ROUNDING = 1e-6  # of float32, relative: outputs that differ by less are equal


def predicted_classes(outputs: Numbers) -> NDArray[np.int64]:
    """What a head's outputs say: (n, classes) logits, (n,) logits of the second class, or (n,) whole class numbers."""
    if outputs.ndim == 2:
        return np.asarray(np.argmax(outputs, axis=1), dtype=np.int64)
    return np.asarray(outputs > 0 if np.issubdtype(outputs.dtype, np.floating) else outputs, dtype=np.int64)


def task_metric(kind: str, targets: Numbers, outputs: Numbers) -> float:
    """ "accuracy", "f1", "pearson" or "spearman", from 0 (correlations: -1) to 1. (n,), outputs -> score

    NaN where outputs are NaN; for a correlation also where all targets are equal, or all outputs but for rounding.

    Args:
        kind: The metric. "f1" is that of class 1; where it is neither there nor predicted, 0.
        targets: (n,) class numbers or scores.
        outputs: For accuracy and f1 what `predicted_classes` takes; for a correlation (n,) numbers.
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
        scores: "task/metric" -> score; only what stands behind the last slash decides.
    """
    if not scores:
        raise InputError("no scores to average; give one or more, such as {'sst/accuracy': 0.5}")
    return float(np.mean([_from_zero_to_one(name.rpartition("/")[2], score) for name, score in scores.items()]))


def confusion(targets: Numbers, predicted: Numbers, classes: int) -> NDArray[np.int64]:
    """How often class i (row) was taken for class j (column). (n,), (n,) -> (classes, classes)"""
    if targets.shape != predicted.shape or targets.ndim != 1:
        raise InputError(f"targets {targets.shape} and predicted {predicted.shape}: give one class number each")
    for name, numbers in (("targets", targets), ("predicted", predicted)):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < classes:
            raise InputError(f"{name}: {numbers.min()} to {numbers.max()} came; {classes} classes are numbered from 0")
    counts = np.bincount(targets.astype(np.int64) * classes + predicted.astype(np.int64), minlength=classes**2)
    return counts.reshape(classes, classes).astype(np.int64)


def _from_zero_to_one(metric: str, score: float) -> float:
    check_known(metric, tuple(_METRICS), "metric")
    return (score + 1) / 2 if metric in _CORRELATIONS else score


def _accuracy(targets: Numbers, outputs: Numbers) -> float:
    return float((predicted_classes(outputs) == targets).mean())


def _f1(targets: Numbers, outputs: Numbers) -> float:
    found, there = predicted_classes(outputs) == 1, targets == 1
    either = int(found.sum() + there.sum())
    return 2 * int((found & there).sum()) / either if either else 0.0


def _pearson(targets: Numbers, outputs: Numbers) -> float:
    return nan if _undefined(targets, outputs) else _correlation(targets, outputs)


def _spearman(targets: Numbers, outputs: Numbers) -> float:
    return nan if _undefined(targets, outputs) else _correlation(_ranks(targets), _ranks(outputs))


def _undefined(targets: Numbers, outputs: Numbers) -> bool:
    """Whether there is no correlation. To be asked before ranks are taken, which make steps of the least rounding."""
    if not np.isfinite(outputs).all():
        return True
    return bool(np.ptp(targets) == 0 or np.ptp(outputs) <= _ROUNDING * np.abs(outputs).max())


def _correlation(targets: Numbers, outputs: Numbers) -> float:
    a, b = targets.astype(np.float64), outputs.astype(np.float64)
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a / np.linalg.norm(a)) @ (b / np.linalg.norm(b)), -1, 1))


def _ranks(values: Numbers) -> NDArray[np.float64]:
    """Ranks from 1, ties by their average. (n,) -> (n,)"""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


_METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "pearson": _pearson,
    "spearman": _spearman,
}
