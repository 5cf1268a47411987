"""Honest selection: dev pairs choose, test pairs report; intervals and p-values by a paired bootstrap.

The best of thousands of sets scores better on the pairs that chose it than on others. So the pairs are split, once or
several times (BERT-LC: 350 dev pairs, 5 random splits); each split's dev pairs choose and its test pairs report. The
bootstrap of the gain over the last layer is paired: both mixes are scored on the same drawn pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from layerwise.errors import InputError
from layerwise.metrics import Numbers
from layerwise.search.choose import BEAM_WIDTH, Choice, Problems, best_of, last_layer, make_table, pick
from layerwise.search.metrics import FEWEST_PAIRS, check_seed
from layerwise.search.problems import RANDOM_STARTS, PairProblem, Progress, Rows, Scores, no_progress
from layerwise.search.spaces import Space, membership
from layerwise.search.table import ScoredSet, ScoreTable

Part = tuple[Rows, Rows]  # the rows of the dev pairs and of the test pairs
_SIGNIFICANT = 0.05
_MAX_GROUPS = 200  # of pairs that the jackknife leaves out
SPREAD = 1.1  # factor on the spread of the resamples of several splits, from the simulation of benchmarks/verdict.py


@dataclass(frozen=True)
class SplitResult:
    """One split: the choice of its dev pairs, and its scores and the last layer's on the dev and test pairs."""

    layers: tuple[int, ...]
    mix: str
    dev: float
    test: float
    last_dev: float
    last_test: float


@dataclass(frozen=True)
class SplitChoice:
    """One split's choice and the last layer, both with dev and test scores, and the rows of its test pairs.

    `front` holds the best sets of its dev pairs by their highest layer.
    """

    best: Choice
    last: Choice
    test: Rows
    front: tuple[ScoredSet, ...] = ()

    @property
    def result(self) -> SplitResult:
        """As plain values."""
        best, last = self.best, self.last
        scores = (best.dev, best.test, last.dev, last.test)
        return SplitResult(best.layers, str(best.mix), *(float("nan") if s is None else s for s in scores))


@dataclass(frozen=True)
class Gain:
    """The gain over the last layer on unseen pairs: estimate, 95 % interval, two-sided p-value of no gain."""

    mean: float
    low: float
    high: float
    p_value: float

    @property
    def is_sure(self) -> bool:
        """Whether it differs from 0, by the interval and by the p-value, which differ slightly in how they count."""
        return self.p_value < _SIGNIFICANT and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Report:
    """Scores on unseen pairs, split by split, and the gain with its interval."""

    splits: tuple[SplitResult, ...]
    gain: Gain
    dev_pairs: int
    test_pairs: int
    seed: int

    def mean(self, name: str) -> float:
        """The mean over the splits of `dev`, `test`, `last_dev` or `last_test`."""
        return float(np.mean([getattr(split, name) for split in self.splits]))

    def sd(self, name: str) -> float:
        """The standard deviation over the splits; NaN for one split."""
        values = [getattr(split, name) for split in self.splits]
        return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def random_splits(pairs: int, dev: int | float, splits: int, seed: int) -> list[Part]:
    """(dev, test) rows of each split. `dev` is a number of pairs, or a share of them below 1."""
    if not np.isfinite(dev) or (dev >= 1 and dev != int(dev)):
        raise InputError(f"{dev} dev pairs are not possible; give a whole number, or a share below 1")
    check_seed(seed)
    n_dev = round(float(dev) * pairs) if 0 < dev < 1 else int(dev)
    if splits < 1:
        raise InputError(f"{splits} splits are not possible; 1 or more are")
    if n_dev < FEWEST_PAIRS or pairs - n_dev < FEWEST_PAIRS:
        raise InputError(
            f"{pairs} pairs, {n_dev} of which choose, are too few: at least {FEWEST_PAIRS} must choose and as many "
            f"must be left to report; give more pairs or another number of dev pairs"
        )
    random = np.random.default_rng(seed)
    orders = [random.permutation(pairs) for _ in range(splits)]
    return [(order[:n_dev], order[n_dev:]) for order in orders]


def halves(pairs: int, seed: int) -> Part:
    """The default split: one random half chooses, the other reports."""
    return random_splits(pairs, 0.5, 1, seed)[0]


def choose_by_splits(
    problems: Problems,
    space: Space,
    method: str,
    parts: Sequence[Part],
    *,
    width: int = BEAM_WIDTH,
    progress: Progress = no_progress,
) -> tuple[list[SplitChoice], ScoreTable]:
    """The choice of each split, scored on its test pairs, and all sets with their mean scores on the dev pairs."""
    choices, tables, dev_problems = [], [], []
    for dev, test in parts:
        choosing, reporting = pick(problems, dev), pick(problems, test)
        for problem in (*choosing.values(), *reporting.values()):
            problem.check()
        table = make_table(choosing, space, method, width=width, progress=progress)
        best, last = best_of(choosing, table, method), last_layer(choosing)
        best, last = replace(best, test=best.on(reporting)), replace(last, test=last.on(reporting))
        choices.append(SplitChoice(best, last, test, tuple(table.front())))
        tables.append(table)
        dev_problems.append(choosing)
    return choices, average_table(tables, dev_problems)


def make_report(problems: Problems, choices: Sequence[SplitChoice], *, seed: int, resamples: int) -> Report:
    """Scores split by split, and the gain with its interval."""
    pairs, test = len(next(iter(problems.values()))), len(choices[0].test)
    gain = bootstrap_gain(
        problems, [(choice.best, choice.last, choice.test) for choice in choices], seed=seed, resamples=resamples
    )
    return Report(tuple(choice.result for choice in choices), gain, pairs - test, test, seed)


def average_table(tables: Sequence[ScoreTable], problems: Sequence[Problems]) -> ScoreTable:
    """The mean of the scores over splits. Beams visit different sets; these are then scored on all splits."""
    if len(tables) == 1:
        return tables[0]
    parts = {}
    for pooling in tables[0].poolings:
        columns = [table.column(pooling) for table in tables]
        masks, scores = columns[0][0], [column[1] for column in columns]
        if not all(np.array_equal(masks, others) for others, _ in columns):
            masks = np.unique(np.concatenate([others for others, _ in columns]))
            scores = [split[pooling].scores(membership(masks, split[pooling].layers)) for split in problems]
        parts[pooling] = masks, np.mean(scores, axis=0)
    return ScoreTable(parts)


@dataclass(frozen=True)
class Redraws:
    """The rows on which a gain is computed again: bootstrap resamples, and jackknife samples that leave out one group.

    The gain itself is the mean over `starts` random seeds of a score that depends on one, as clustering does; resamples
    vary the seed too (`KindProblem.redrawn`).
    """

    size: int
    resamples: Sequence[Rows]
    without: Sequence[Rows]
    starts: int = 1

    @classmethod
    def of(cls, size: int, *, seed: int, resamples: int, smooth: bool) -> "Redraws":
        """Draw rows of `size` pairs; without jackknife samples if scores are not smooth, as it is invalid then."""
        random = np.random.default_rng(seed)
        draws = [random.integers(size, size=size) for _ in range(resamples)]
        groups = np.array_split(random.permutation(size), min(size, _MAX_GROUPS)) if smooth else []
        without = [np.setdiff1d(np.arange(size), group) for group in groups]
        return cls(size, draws, without, starts=1 if smooth else RANDOM_STARTS)


@dataclass(frozen=True)
class RedrawnGain:
    """The gain of one split's choice on its test pairs: on all, on those in each resample (resamples,), and without
    those of each group (groups,).
    """

    estimate: float
    redrawn: Numbers
    left_out: Numbers


def bootstrap_gain(
    problems: Problems,
    choices: Sequence[tuple[Choice, Choice, Rows]],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> Gain:
    """The gain by a paired bootstrap over splits, each with its choice, the last layer and its test pairs.

    All pairs are resampled, and every split's gain is computed on the drawn ones of its test pairs.
    """
    smooth = all(isinstance(problem, PairProblem) and problem.metric.smooth for problem in problems.values())
    redraws = Redraws.of(len(next(iter(problems.values()))), seed=seed, resamples=resamples, smooth=smooth)
    gains = []
    for best, last, test in choices:

        def scores(draws: Sequence[Rows], best: Choice = best, last: Choice = last) -> Scores:
            return np.stack([_scores(problems, choice, draws) for choice in (best, last)], axis=1)

        gains.append(paired_gain(scores, test, redraws))
    return mean_gain(gains)


def paired_gain(scores: Callable[[Sequence[Rows]], Scores], test: Rows, redraws: Redraws) -> RedrawnGain:
    """The gain of one split's choice; `scores` maps draws to the scores of the choice and the last layer (draws, 2)."""
    is_tested = np.zeros(redraws.size, dtype=bool)
    is_tested[test] = True
    whole = [test] * redraws.starts
    drawn = (rows[is_tested[rows]] for rows in (*redraws.resamples, *redraws.without))
    best, last = scores([*whole, *drawn]).T
    gains, resamples = best - last, len(whole) + len(redraws.resamples)
    estimate = float(gains[: len(whole)].mean())
    return RedrawnGain(estimate, gains[len(whole) : resamples], gains[resamples:])


def mean_gain(gains: Sequence[RedrawnGain]) -> Gain:
    """The mean of the splits' gains, with the interval of its resamples, each drawn for all splits at once.

    There are two corrections, whose effect on the interval's coverage is in docs/search.md. First, resamples contain
    pairs several times, so that the gain of two similar mixes varies more between them than between samples: if their
    variance is larger than the jackknife's, it is scaled down to it. Second, resamples hold the choices fixed, but test
    pairs of one split are dev pairs of others, so that the mean of several splits varies more than its resamples: they
    are scaled up by `SPREAD`.
    """
    estimate = float(np.mean([gain.estimate for gain in gains]))
    redrawn, left_out = (np.mean([getattr(gain, name) for gain in gains], axis=0) for name in ("redrawn", "left_out"))
    scale = _jackknife_scale(redrawn, left_out) * (SPREAD if len(gains) > 1 else 1.0)
    return summarise(estimate, estimate + scale * (redrawn - estimate))


def _jackknife_scale(redrawn: Numbers, left_out: Numbers) -> float:
    """The jackknife's standard deviation relative to the resamples', at most 1."""
    redrawn, left_out = redrawn[~np.isnan(redrawn)], left_out[~np.isnan(left_out)]
    if len(redrawn) < 2 or len(left_out) < 2 or np.ptp(redrawn) == 0:
        return 1.0
    variance = (len(left_out) - 1) * np.var(left_out)
    return min(1.0, float(np.sqrt(variance / np.var(redrawn))))


def summarise(estimate: float, redrawn: Numbers) -> Gain:
    """An estimate with its interval and p-value from resamples; undefined ones (NaN) are ignored."""
    gains = redrawn[~np.isnan(redrawn)]
    if not len(gains):
        return Gain(*[float("nan")] * 4)
    low, high = (float(value) for value in np.quantile(gains, (0.025, 0.975)))
    tail = min(int((gains <= 0).sum()), int((gains >= 0).sum()))
    return Gain(estimate, low, high, min(1.0, 2 * (tail + 1) / (len(gains) + 1)))


def _scores(problems: Problems, choice: Choice, draws: Sequence[Rows]) -> Scores:
    problem = problems[choice.pooling]
    return problem.redrawn(choice.weights(problem.layers), draws)[:, 0]
