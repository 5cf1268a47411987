"""Intervals of many runs against the best of them, which hold for all pairs of runs at once.

The best is known only after looking, and the best of many equal runs looks better than most of them. So the width of
the intervals in standard errors is the 95 % quantile of the largest standardised deviation of any pair (max-t), widened
by Student's t for few rows or tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any]]
_LEVEL = 0.95
_EQUAL = 1e-12  # the standard error of two runs that never differ


@dataclass(frozen=True)
class Difference:
    """A run's mean minus the best's, with its interval."""

    mean: float
    low: float
    high: float

    @property
    def tied(self) -> bool:
        """Whether the run is not significantly worse than the best."""
        return self.high >= 0


def differences_from_best(means: Numbers, deviations: Numbers, best: int, freedom: int) -> list[Difference]:
    """Compute every run minus the best, with simultaneous intervals for all pairs.

    Args:
        means: The runs' means: (runs,)
        deviations: How far they are from them on the same resamples: (runs, resamples)
        best: The number of the best run.
        freedom: The degrees of freedom of the standard errors.
    """
    errors = (deviations - deviations[best]).std(axis=1)
    reach = _critical_value(deviations, freedom) * errors
    return [
        Difference(float(mean), float(mean - width), float(mean + width))
        for mean, width in zip(means - means[best], reach, strict=True)
    ]


def task_deviations(scores: Numbers, resamples: int, random: np.random.Generator) -> Numbers:
    """Draw tasks anew and return how far the runs' means are from those of all tasks.

    (runs, tasks) -> (runs, resamples). Rows are not drawn: scores vary by them already.
    """
    count = scores.shape[1]
    drawn = random.multinomial(count, np.full(count, 1 / count), size=resamples) / count
    widened = np.sqrt(count / max(count - 1, 1))  # a bootstrap of few tasks is too narrow by so much
    deviations: Numbers = widened * (scores @ drawn.T - scores.mean(axis=1, keepdims=True))
    return deviations


def mean_of_groups(groups: Sequence[Sequence[Numbers]]) -> Numbers:
    """Return the mean of the groups' means."""
    means: Numbers = np.mean([np.mean(group, axis=0) for group in groups], axis=0)
    return means


def _critical_value(deviations: Numbers, freedom: int) -> float:
    """Return the 95 % quantile of the resamples' largest deviation, in standard errors, of any pair of runs.

    Standard errors of few rows are uncertain themselves: the value is that of Student's t at the same probability.
    """
    from scipy.stats import norm, t

    largest = np.zeros(deviations.shape[1])
    for reference in deviations:
        differences = deviations - reference
        errors = differences.std(axis=1)
        varying = errors > _EQUAL
        if varying.any():
            largest = np.maximum(largest, (np.abs(differences[varying]) / errors[varying, None]).max(axis=0))
    return float(t.isf(norm.sf(np.quantile(largest, _LEVEL)), max(freedom, 1)))
