"""Sets of layers with exact scores: the choosing units of every split score all sets, or those that a beam visits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evidence import Rows, Split, Splits, draw_halves
from layerwise.mixes import Mean, Mix
from layerwise.registry import check_known
from layerwise.search.beam import beam_search
from layerwise.search.problems import PairProblem, Progress, Scores, SetProblem, no_progress
from layerwise.search.scored import Redraw, Scored, Scorer, SplitChoice, Stability, chosen_views
from layerwise.search.spaces import Space, layers_of, mask_of, membership
from layerwise.search.table import ScoreTable
from layerwise.search.view_cost import Prices
from layerwise.search.weights import search_weights

Problems = Mapping[str, SetProblem]  # by token pooling
METHODS = ("auto", "exhaustive", "beam", "greedy", "weights")
BEAM_WIDTH = 32  # sets of each size that a beam keeps
EXHAUSTIVE = 2**26  # the number of sets above which the method "auto" is a beam search
_FEW_SETS, _NARROW = 2**7, 4  # the same where sets are embedded one by one, and the width of that beam
_HALVES = 20  # pairs of complementary halves
_MAX_CANDIDATES = 2**13  # best sets by all units among which halves choose: all sets of 13 layers
_MAX_SIMILARITIES = 2**24  # of these candidates, in memory at once


@dataclass(eq=False)
class SetScorer(Scorer):
    """Scores sets of layers on problems, one for each token pooling; a set has one pooling.

    Args:
        problems: Anything that scores sets of layers on all or some of its units, by token pooling.
        splits: Which units choose and which report.
        metric: The name of the scores.
        unit: The unit of the problems, such as "queries".
        space: The sets to choose from.
        method: One of `METHODS`; "auto" is exhaustive for at most 2^26 sets (127 where sets are embedded one by one).
        beam_width: The number of sets of each size that a beam keeps.
        pooling: The token pooling of the last layer; by default "mean", or the first.
        seed: The seed of the halves.
        progress: Called with the number of sets just scored.
    """

    problems: Problems
    splits: Splits
    metric: str
    unit: str = "pairs"
    space: Space = field(default_factory=Space)
    method: str = "auto"
    beam_width: int = BEAM_WIDTH
    pooling: str | None = None
    seed: int = 0
    progress: Progress = no_progress

    def __post_init__(self) -> None:
        check_known(self.method, METHODS, "method")
        first = next(iter(self.problems.values()))
        self.layers = first.layers
        default = "mean" if "mean" in self.problems else next(iter(self.problems))
        self._pooling = self.pooling if self.pooling in self.problems else default
        self._one_by_one = not first.scans_fast
        if self.method == "weights" and self._one_by_one:
            raise InputError("layer weights are searched for pairs with scores or labels; take another method")
        if self.method == "auto" and self._one_by_one:
            self.method = "exhaustive" if self.space.count(self.layers) < _FEW_SETS else "beam"
            self.beam_width = _NARROW

    def __len__(self) -> int:
        return len(next(iter(self.problems.values())))

    @property
    def starts(self) -> int:
        """The number of random seeds over which a score is averaged."""
        return max(problem.starts for problem in self.problems.values())

    @property
    def candidates(self) -> str:
        """Such as "127 sets"."""
        return f"{len(self.table):,} sets"

    @property
    def sets_to_score(self) -> int | None:
        """The number of sets that the splits score, for a progress bar; None for a beam, which cannot know."""
        if not scores_every_set(self.space, self.method, self.layers):
            return None
        return self.space.count(self.layers) * len(self.problems) * len(self.splits)

    @property
    def are_means(self) -> bool:
        """Whether the problems are of queries, or of a kind whose metric is a mean over its units."""
        return all(problem.is_mean for problem in self.problems.values())

    @property
    def smooth(self) -> bool:
        """Whether the metric is one of pairs that no single pair changes much."""
        return all(isinstance(problem, PairProblem) and problem.metric.smooth for problem in self.problems.values())

    @property
    def choices(self) -> list[SplitChoice]:
        """What each split chooses."""
        return self._chosen[0]

    @property
    def table(self) -> ScoreTable:
        """Every set's mean score on the choosing units of the splits, best first."""
        return self._chosen[1]

    @cached_property
    def best(self) -> Scored:
        """The best set over all splits, with mean scores; of several splits the set that is best on average."""
        return self._mean([choice.best for choice in self.choices], self._best_of_all())

    @cached_property
    def last(self) -> Scored:
        """The last layer."""
        return self._mean([choice.last for choice in self.choices], self.choices[0].last.mix)

    @cached_property
    def baseline(self) -> Scored:
        """The last layer; in a space without it, the highest layer that is a set by itself."""
        layer = self.space.highest_single(self.layers)
        if layer in (None, self.layers - 1):
            return self.last
        mix = Mean.of(layer, pooling=self._pooling or "mean")
        return self._mean([self._scored(mix, split) for split in self.splits.parts], mix)

    @property
    def may_keep(self) -> bool:
        """Whether the space has single layers."""
        return self.space.highest_single(self.layers) is not None

    @cached_property
    def front(self) -> list[Scored]:
        """The best sets by highest layer; in each split its own best set of so many blocks reports."""
        fronts = []
        for best in self.table.front():
            by_split = []
            for split, table in zip(self.splits.parts, self._fronts, strict=True):
                affordable = [scored for scored in table if scored.layers[-1] <= best.layers[-1]] or [best]
                by_split.append(replace(affordable[-1], test=self._on(affordable[-1].mix, split.test)))
            fronts.append(replace(self._mean(by_split, best.mix), dev=best.dev))
        return fronts

    @cached_property
    def stability(self) -> Stability:
        """What complementary halves of the units choose; of the choosing ones if sets are embedded one by one."""
        rows = self.splits[0].dev if self._one_by_one else np.arange(len(self))
        problems, groups = self._picked(rows), self.splits.groups[rows]
        size = len(next(iter(problems.values())))
        halves = draw_halves(size, _HALVES, self.seed, groups=groups)
        top = self.table.best_rows(max(2, min(_MAX_CANDIDATES, _MAX_SIMILARITIES // size)))
        scores = np.empty((len(halves), len(top)))
        for pooling, problem in problems.items():
            part = self.table.rows_of(pooling)
            places = np.flatnonzero((top >= part.start) & (top < part.stop))
            if len(places):
                scores[:, places] = problem.redrawn(membership(self.table.masks[top[places]], self.layers), halves)
        best = [None if np.isnan(row).all() else self.table.at(int(top[np.nanargmax(row)])) for row in scores]
        return Stability.of([None if one is None else chosen_views(one.mix) for one in best], unit=self.unit)

    def score(self, mix: Mix, rows: Rows) -> float:
        """The score of a mix on some units, in float64."""
        problem = self._problem(mix).pick(rows)
        return float(problem.scores(weights_of(mix, problem.layers))[0])

    def unseen_scores(self, mixes: Sequence[Mix]) -> Scores:
        """Scores of any mixes on the reporting units of each split: (mixes, splits)"""
        return np.array([[self.score(mix, split.test) for split in self.splits.parts] for mix in mixes])

    def redraw(self, number: int, mixes: Sequence[Mix]) -> Redraw:  # noqa: ARG002 - the same for all splits
        """A function from draws of units to the scores of mixes on them: draws -> (draws, mixes)"""

        def scores(draws: Sequence[Rows]) -> Scores:
            columns = [self._problem(mix).redrawn(weights_of(mix, self.layers), draws)[:, 0] for mix in mixes]
            return np.stack(columns, axis=1)

        return scores

    def choose(self, rows: Rows) -> tuple[Mix, float, ScoreTable]:
        """The best mix of some units with its score, and the table of their scores."""
        choosing = self._picked(rows)
        for problem in choosing.values():
            problem.check()
        table = self._table(choosing)
        if self.method == "weights":
            weighted = [self._weighted(choosing, table, pooling) for pooling in choosing]
            return *max(weighted, key=lambda mix_and_score: mix_and_score[1]), table
        best = table.best.mix
        return best, float(choosing[best.pooling].scores(weights_of(best, self.layers))[0]), table

    @cached_property
    def _chosen(self) -> tuple[list[SplitChoice], ScoreTable]:
        last = Mean.of(self.layers - 1, pooling=self._pooling or "mean")
        choices, tables = [], []
        self._fronts: list[list[Scored]] = []
        for split in self.splits.parts:
            for problem in self._picked(split.test).values() if len(split.test) else ():
                problem.check()
            mix, dev, table = self.choose(split.dev)
            best = Scored(mix, dev, self._on(mix, split.test))
            choices.append(SplitChoice(best, self._scored(last, split), split))
            tables.append(table)
            self._fronts.append(table.front() if len(split.test) else [])
        return choices, self._average(tables)

    def _table(self, problems: Problems) -> ScoreTable:
        """Score every set, or those that a beam visits."""
        parts = {}
        for pooling, problem in problems.items():
            if scores_every_set(self.space, self.method, problem.layers):
                parts[pooling] = problem.scan(self.space, progress=self.progress)
            else:
                width = 1 if self.method == "greedy" else self.beam_width
                parts[pooling] = beam_search(problem, self.space, width=width, progress=self.progress)
        return ScoreTable(parts)

    def _average(self, tables: Sequence[ScoreTable]) -> ScoreTable:
        """The mean of the scores over splits. Beams visit different sets; these are then scored on all splits."""
        if len(tables) == 1:
            return tables[0]
        parts = {}
        for pooling, problem in self.problems.items():
            columns = [table.column(pooling) for table in tables]
            masks, scores = columns[0][0], [column[1] for column in columns]
            if not all(np.array_equal(masks, others) for others, _ in columns):
                masks = np.unique(np.concatenate([others for others, _ in columns]))
                members = membership(masks, self.layers)
                scores = [problem.pick(split.dev).scores(members) for split in self.splits.parts]
            parts[pooling] = masks, np.mean(scores, axis=0)
        return ScoreTable(parts)

    def _weighted(self, problems: Problems, table: ScoreTable, pooling: str) -> tuple[Mix, float]:
        """Weights optimised from the best set of a pooling, with their score."""
        part = np.arange(len(table))[table.rows_of(pooling)]
        start = table.at(table.best_row(part))
        usable = layers_of(int(np.bitwise_or.reduce(table.masks[part])))
        masks = np.array([mask_of(start.layers), mask_of(usable), mask_of(usable[-1:])], dtype=np.uint64)
        result = search_weights(problems[pooling], membership(masks, self.layers), usable)
        return _weights_mix(result.weights, pooling), result.score

    def _best_of_all(self) -> Mix:
        if len(self.choices) == 1:
            return self.choices[0].best.mix
        if self.method != "weights":
            return self.table.best.mix
        mixes = [choice.best.mix for choice in self.choices]
        (pooling, _), *_ = Counter(mix.pooling for mix in mixes).most_common()
        weights = [weights_of(mix, self.layers) for mix in mixes if mix.pooling == pooling]
        return _weights_mix(np.concatenate(weights).mean(0), pooling)

    def _mean(self, by_split: Sequence[Scored], mix: Mix) -> Scored:
        return Scored.mean(mix, by_split, Prices(self.layers - 1).of_mix(mix))

    def _scored(self, mix: Mix, split: Split) -> Scored:
        return Scored(mix, self.score(mix, split.dev), self._on(mix, split.test))

    def _on(self, mix: Mix, rows: Rows) -> float | None:
        return self.score(mix, rows) if len(rows) else None

    def _picked(self, rows: Rows) -> dict[str, SetProblem]:
        return {pooling: problem.pick(rows) for pooling, problem in self.problems.items()}

    def _problem(self, mix: Mix) -> SetProblem:
        if mix.pooling not in self.problems:
            raise InputError(f"The mix {mix} needs {mix.pooling} views; these are {', '.join(self.problems)}")
        if mix.layers[-1] >= self.layers:
            raise InputError(f"The mix {mix} needs layer {mix.layers[-1]}; the views end at {self.layers - 1}")
        return self.problems[mix.pooling]


def scores_every_set(space: Space, method: str, layers: int) -> bool:
    """Whether a method scores the whole space, or only the sets that a beam visits."""
    return method == "exhaustive" or (method in ("auto", "weights") and space.count(layers) <= EXHAUSTIVE)


def weights_of(mix: Mix, layers: int) -> NDArray[np.float64]:
    """A mix as one row of weights: (1, layers)"""
    row = np.zeros((1, layers))
    if mix.terms is None:
        raise InputError(f"{mix} is no weighted sum of layers: {mix.nonlinear}")
    for view, weight, _ in mix.terms:
        row[0, view.layer] = weight
    return row


def _weights_mix(weights: NDArray[np.float64], pooling: str) -> Mean:
    """A row of weights (layers,) as a mix of the layers with nonzero weights."""
    return Mean.weighted({layer: float(weight) for layer, weight in enumerate(weights) if weight}, pooling=pooling)
