"""The gain of a mix over the last layer, by the paired bootstrap: both on the same drawn pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.search.choose import Choice, Problems
from layerwise.search.problems import Rows
from layerwise.search.redraw import Numbers
from layerwise.search.scan import Scores


@dataclass(frozen=True)
class Gain:
    """The gain over the last layer on unseen pairs: estimate, 95 % interval, two-sided p-value of no gain."""

    mean: float
    low: float
    high: float
    p_value: float


def bootstrap_gain(
    problems: Problems,
    choices: Sequence[tuple[Choice, Choice, Rows]],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> Gain:
    """The paired bootstrap over splits, each with its choice, the last layer and its test pairs.

    All pairs are drawn anew, and every split's gain is taken on those of its test pairs that were drawn.
    """
    size = len(next(iter(problems.values())))
    random = np.random.default_rng(seed)
    draws = [random.integers(size, size=size) for _ in range(resamples)]
    estimates, redrawn = [], []
    for best, last, test in choices:
        kept = np.zeros(size, dtype=bool)
        kept[test] = True
        inside = [draw[kept[draw]] for draw in draws]
        estimates.append(_scores(problems, best, [test])[0] - _scores(problems, last, [test])[0])
        redrawn.append(_scores(problems, best, inside) - _scores(problems, last, inside))
    return summarise(float(np.mean(estimates)), np.mean(redrawn, axis=0))


def summarise(estimate: float, redrawn: Numbers) -> Gain:
    """An estimate with what its resamples say of it; resamples where it is not defined (NaN) don't count."""
    gains = redrawn[~np.isnan(redrawn)]
    if not len(gains):
        return Gain(*[float("nan")] * 4)
    low, high = (float(value) for value in np.quantile(gains, (0.025, 0.975)))
    tail = min(int((gains <= 0).sum()), int((gains >= 0).sum()))
    return Gain(estimate, low, high, min(1.0, 2 * (tail + 1) / (len(gains) + 1)))


def _scores(problems: Problems, choice: Choice, draws: Sequence[Rows]) -> Scores:
    problem = problems[choice.pooling]
    return problem.redrawn(choice.weights(problem.layers), draws)[:, 0]
