"""What scoring one task gives, before anybody knows which model and data it was."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Figures = dict[str, float]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Figures (× 100 where they are correlations, accuracies or shares), and what they were computed from.

    Args:
        figures: Metric -> figure, the mean over seeds where there are several.
        items: What each test row got: a similarity (sts), whether it was right (classification), a reciprocal rank
            (retrieval), the mean over seeds. Two runs are compared row by row.
        gold: The rows' grades, for a correlation; else empty.
        sd: Metric -> standard deviation over the seeds, where something is random.
        details: By subset, by fold, what was chosen, times.
    """

    figures: Figures
    items: NDArray[np.floating[Any]]
    gold: NDArray[np.floating[Any]] = field(default_factory=lambda: np.empty(0))
    sd: Figures = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


def over_seeds(outcomes: dict[int, Outcome]) -> Outcome:
    """The mean of several seeds' outcomes, with standard deviations; details by seed."""
    found = list(outcomes.values())
    if len(found) == 1:
        return found[0]
    values = {name: [outcome.figures[name] for outcome in found] for name in found[0].figures}
    return Outcome(
        {name: float(np.mean(of_seeds)) for name, of_seeds in values.items()},
        items=np.mean([outcome.items for outcome in found], axis=0),
        gold=found[0].gold,
        sd={name: float(np.std(of_seeds, ddof=1)) for name, of_seeds in values.items()},
        details={"seeds": {str(seed): outcome.figures | outcome.details for seed, outcome in outcomes.items()}},
    )
