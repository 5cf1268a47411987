"""What every kind of task gives: a problem, which is texts to embed, and the outcome of scoring their vectors."""

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
    """The figures of a task (× 100 where they are correlations, accuracies or shares), and what they come from.

    Args:
        figures: Metric -> figure, the mean over seeds where there are several.
        items: What each test row or query contributes to the headline figure: a similarity (sts, pairs), whether it
            was right (classes), a score (retrieval, reranking, bitext), a cluster (clustering); the mean over seeds.
            Two runs are compared row by row.
        gold: The rows' grades, labels or classes, where the headline needs them; else empty.
        sd: Metric -> standard deviation over the seeds, where something is random.
        details: Figures by subset, settings that were chosen, times.
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
        """Role ("query", "document" or "" for none) -> the texts to embed, each different one once."""

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """The outcome by the vectors of `texts`: role -> (texts, width)"""


class Divisible(Problem, Protocol):
    """A problem of which parts can be scored: some of its rows, pairs or queries choose layers, others report."""

    unit: ClassVar[str]  # what is picked, such as "queries"
    redraws: ClassVar[Mapping[str, Redraw]]  # headline figure, without its depth -> its value on resamples

    def __len__(self) -> int: ...

    def pick(self, units: Units) -> Self:
        """The same on some of the units; its texts stay those of all of them."""

    def unit_texts(self) -> list[str]:
        """The texts that its units are made of."""

    def reseeded(self, count: int) -> Sequence[Self]:
        """Itself, and the same by other random seeds where its score depends on one."""


def over_seeds(outcomes: dict[int, Outcome]) -> Outcome:
    """The mean of several seeds' outcomes, with standard deviations; details by seed."""
    several = list(outcomes.values())
    if len(several) == 1:
        return several[0]
    values = {name: [outcome.figures[name] for outcome in several] for name in several[0].figures}
    return Outcome(
        {name: float(np.mean(of_seeds)) for name, of_seeds in values.items()},
        items=np.mean([outcome.items for outcome in several], axis=0),
        gold=several[0].gold,
        sd={name: float(np.std(of_seeds, ddof=1)) for name, of_seeds in values.items()},
        details={"seeds": {str(seed): outcome.figures | outcome.details for seed, outcome in outcomes.items()}},
    )


def redraw_mean(items: Numbers, gold: Numbers, counts: Numbers) -> Numbers:  # noqa: ARG001 - as other figures
    """The mean of the items on resamples: (rows,), unused, (draws, rows) -> (draws,)"""
    means: Numbers = counts @ items / counts.sum(1)
    return means
