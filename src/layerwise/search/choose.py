"""Choose the best mix by one problem per token pooling; splits and resamples repeat this choice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.mixes import Mean
from layerwise.registry import check_known
from layerwise.search.beam import beam_search
from layerwise.search.problems import Problem, Progress, Rows, no_progress
from layerwise.search.spaces import Space, layers_of, mask_of, membership
from layerwise.search.table import ScoreTable
from layerwise.search.weights import search_weights

Problems = Mapping[str, Problem]  # by token pooling
METHODS = ("auto", "exhaustive", "beam", "greedy", "weights")
BEAM_WIDTH = 32  # sets of each size that a beam keeps
EXHAUSTIVE = 2**26  # the number of sets above which the method "auto" is a beam search


@dataclass(frozen=True)
class Choice:
    """A mix with its scores: on the pairs that chose it (`dev`) and on held-out pairs (`test`), if there are any."""

    mix: Mean
    dev: float
    test: float | None = None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the mix."""
        return self.mix.layers

    @property
    def pooling(self) -> str:
        """The token pooling of the mix."""
        return self.mix.pooling

    def weights(self, layers: int) -> NDArray[np.float64]:
        """The mix as one row of weights: (1, layers)"""
        row = np.zeros((1, layers))
        row[0, [view.layer for view in self.mix.views]] = self.mix.weights or 1
        return row

    def on(self, problems: Problems) -> float:
        """The score of the mix on other problems, computed in float64 without `Halves`."""
        if self.pooling not in problems:
            raise InputError(f"The mix {self.mix} needs {self.pooling} views; these are {', '.join(problems)}")
        problem = problems[self.pooling]
        if self.layers[-1] >= problem.layers:
            raise InputError(f"The mix {self.mix} needs layer {self.layers[-1]}; the views end at {problem.layers - 1}")
        return float(problem.scores(self.weights(problem.layers))[0])


def pick(problems: Problems, rows: Rows) -> dict[str, Problem]:
    """The problems on a subset of their pairs."""
    return {pooling: problem.pick(rows) for pooling, problem in problems.items()}


def make_table(
    problems: Problems, space: Space, method: str, *, width: int = BEAM_WIDTH, progress: Progress = no_progress
) -> ScoreTable:
    """Score every set, or those that a beam visits."""
    parts = {}
    for pooling, problem in problems.items():
        if scores_every_set(space, method, problem.layers):
            parts[pooling] = problem.scan(space, progress=progress)
        else:
            beam_width = 1 if method == "greedy" else width
            parts[pooling] = beam_search(problem, space, width=beam_width, progress=progress)
    return ScoreTable(parts)


def scores_every_set(space: Space, method: str, layers: int) -> bool:
    """Whether a method scores the whole space, or only the sets that a beam visits."""
    return method == "exhaustive" or (method in ("auto", "weights") and space.count(layers) <= EXHAUSTIVE)


def best_of(problems: Problems, table: ScoreTable, method: str) -> Choice:
    """The best set of the table; with the method `weights`, the weights optimised from it."""
    best = table.best
    choice = Choice(best.mix, best.score)
    if method == "weights":
        return max((_weighted(problems, table, pooling) for pooling in problems), key=lambda choice: choice.dev)
    return replace(choice, dev=choice.on(problems))


def last_layer(problems: Problems) -> Choice:
    """The baseline: the last layer by mean pooling, or by the first pooling if "mean" is not among them."""
    pooling = "mean" if "mean" in problems else next(iter(problems))
    choice = Choice(Mean.of(problems[pooling].layers - 1, pooling=pooling), np.nan)
    return replace(choice, dev=choice.on(problems))


def check_method(method: str) -> None:
    """Refuse an unknown method."""
    check_known(method, METHODS, "method")


def _weighted(problems: Problems, table: ScoreTable, pooling: str) -> Choice:
    problem = problems[pooling]
    part = np.arange(len(table))[table.rows_of(pooling)]
    start = table.at(table.best_row(part))
    usable = layers_of(int(np.bitwise_or.reduce(table.masks[part])))
    masks = np.array([mask_of(start.layers), mask_of(usable), mask_of(usable[-1:])], dtype=np.uint64)
    result = search_weights(problem, membership(masks, problem.layers), usable)
    return Choice(weights_mix(result.weights, pooling), result.score)


def weights_mix(weights: NDArray[np.float64], pooling: str) -> Mean:
    """A row of weights (layers,) as a mix of the layers with nonzero weights."""
    return Mean.weighted({layer: float(weight) for layer, weight in enumerate(weights) if weight}, pooling=pooling)
