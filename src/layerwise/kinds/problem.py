"""The interface of all kinds of tasks: a problem with texts to embed, and the outcome of scoring their vectors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import Array

Figures = dict[str, float]
Numbers = NDArray[np.floating[Any]]
Units = NDArray[np.integer[Any]]
Codes = NDArray[np.intp]  # classes as numbers
Redraw = Callable[[Numbers, Numbers, Numbers], Numbers]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The figures of a task (correlations, accuracies and shares × 100), and the values of single rows behind them.

    Args:
        figures: The figure of each metric; the mean over seeds if there are several.
        items: The contribution of each test row or query to the main figure: a similarity (sts, pairs), whether it
            was correct (classes), a score (retrieval, reranking, bitext), a cluster (clustering); the mean over seeds.
            Paired comparisons of runs need it.
        gold: The rows' grades, labels or classes, if the main figure needs them; else empty.
        sd: The standard deviation of each figure over the seeds, if it is random.
        details: Figures by subset, chosen settings, times.
    """

    figures: Figures
    items: Numbers
    gold: Numbers = field(default_factory=lambda: np.empty(0))
    sd: Figures = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


class Problem(Protocol):
    """A task that is ready to be scored."""

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """The unique texts to embed, by role ("query", "document" or "" for none)."""

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """The outcome for the vectors of `texts`, by role: (texts, width)"""


class Divisible(Problem, Protocol):
    """A problem whose rows, pairs or queries can be split: some choose layers, others report."""

    unit: ClassVar[str]  # what is split, such as "queries"
    redraws: ClassVar[Mapping[str, Redraw]]  # by figure without its cut-off: computes it on resamples

    def __len__(self) -> int: ...

    def pick(self, units: Units) -> Self:
        """The problem on a subset of the units, with the texts of all units."""

    def unit_texts(self) -> list[str]:
        """The texts of its units."""

    def reseeded(self, count: int) -> Sequence[Self]:
        """Itself, and copies with other random seeds if its score depends on one."""


def over_seeds(outcomes: dict[int, Outcome]) -> Outcome:
    """The mean of several seeds' outcomes, with standard deviations; details by seed."""
    runs = list(outcomes.values())
    if len(runs) == 1:
        return runs[0]
    values = {name: [outcome.figures[name] for outcome in runs] for name in runs[0].figures}
    return Outcome(
        {name: float(np.mean(of_seeds)) for name, of_seeds in values.items()},
        items=np.mean([outcome.items for outcome in runs], axis=0),
        gold=runs[0].gold,
        sd={name: float(np.std(of_seeds, ddof=1)) for name, of_seeds in values.items()},
        details={"seeds": {str(seed): outcome.figures | outcome.details for seed, outcome in outcomes.items()}},
    )


def redraw_mean(items: Numbers, gold: Numbers, counts: Numbers) -> Numbers:  # noqa: ARG001 - the interface of `Redraw`
    """The mean of the items on resamples: (rows,), unused, (draws, rows) -> (draws,)"""
    means: Numbers = counts @ items / counts.sum(1)
    return means
