"""Selection you can trust: some pairs choose, others report; intervals, p-values, stability.

The best of thousands of sets looks better on the pairs that chose it than it is. So the pairs are split, once or
several times (BERT-LC: 350 dev pairs, 5 random splits), each split's dev pairs choose and its other pairs report. The
gain over the last layer is resampled in pairs: both mixes on the same drawn pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from layerwise.errors import InputError
from layerwise.search.choose import BEAM_WIDTH, Choice, Problems, best_of, last_layer, make_table, pick
from layerwise.search.metrics import FEWEST_PAIRS, Numbers, check_seed
from layerwise.search.problems import RANDOM_STARTS, PairProblem, Progress, Rows, Scores, no_progress
from layerwise.search.spaces import Space, membership
from layerwise.search.table import ScoredSet, ScoreTable

Part = tuple[Rows, Rows]  # the pairs that choose, and those that report
_SIGNIFICANT = 0.05
_GROUPS = 200  # of pairs, at most, that the jackknife leaves out
SPREAD = 1.1  # of the resamples of several splits, by the simulation of benchmarks/verdict.py


@dataclass(frozen=True)
class SplitResult:
    """One split: what its dev pairs chose, and how that and the last layer score on its dev and test pairs."""

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
        """Whether it is not 0, by the interval and by the p-value, which counts resamples a little differently."""
        return self.p_value < _SIGNIFICANT and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Report:
    """What the search is worth on pairs that it has not seen."""

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
    chosen = round(float(dev) * pairs) if 0 < dev < 1 else int(dev)
    if splits < 1:
        raise InputError(f"{splits} splits are not possible; 1 or more are")
    if chosen < FEWEST_PAIRS or pairs - chosen < FEWEST_PAIRS:
        raise InputError(
            f"{pairs} pairs, {chosen} of which choose, are too few: at least {FEWEST_PAIRS} must choose and as many "
            f"must be left to report; give more pairs or another number of dev pairs"
        )
    random = np.random.default_rng(seed)
    orders = [random.permutation(pairs) for _ in range(splits)]
    return [(order[:chosen], order[chosen:]) for order in orders]


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
    """Each split's dev pairs choose, its test pairs report. Also the sets' scores on dev pairs, mean of the splits."""
    choices, tables, choosers = [], [], []
    for dev, test in parts:
        choosing, reporting = pick(problems, dev), pick(problems, test)
        for some in (*choosing.values(), *reporting.values()):
            some.check()
        table = make_table(choosing, space, method, width=width, progress=progress)
        best, last = best_of(choosing, table, method), last_layer(choosing)
        best, last = replace(best, test=best.on(reporting)), replace(last, test=last.on(reporting))
        choices.append(SplitChoice(best, last, test, tuple(table.front())))
        tables.append(table)
        choosers.append(choosing)
    return choices, average_table(tables, choosers)


def make_report(problems: Problems, choices: Sequence[SplitChoice], *, seed: int, resamples: int) -> Report:
    """Scores split by split, and the gain with its interval."""
    pairs, test = len(next(iter(problems.values()))), len(choices[0].test)
    gain = bootstrap_gain(
        problems, [(choice.best, choice.last, choice.test) for choice in choices], seed=seed, resamples=resamples
    )
    return Report(tuple(choice.result for choice in choices), gain, pairs - test, test, seed)


def rows_apart(left: Sequence[str], right: Sequence[str], dev: Rows, test: Rows) -> Rows:
    """The reporting pairs that share no sentence with a choosing one."""
    chose = {text for row in dev for text in (left[row], right[row])}
    return np.array([row for row in test if left[row] not in chose and right[row] not in chose], dtype=int)


def parts_apart(
    parts: Sequence[Part], left: Sequence[str], right: Sequence[str], gold: Numbers
) -> tuple[list[Part], int]:
    """Splits without the reporting pairs that share a sentence with a choosing one, and how many these were."""
    apart, left_out = [], 0
    for dev, test in parts:
        clean = rows_apart(left, right, dev, test)
        left_out += len(test) - len(clean)
        if len(clean) < FEWEST_PAIRS:
            raise InputError(
                f"{len(test) - len(clean)} of {len(test)} reporting pairs share a sentence with one that chooses and "
                f"are left out; {len(clean)} are too few; give pairs whose sentences do not repeat, or a task that "
                f"declares dev and test rows"
            )
        if np.ptp(gold[clean]) == 0:
            raise InputError(f"The {len(clean)} reporting pairs all have the same score; give more pairs")
        apart.append((dev, clean))
    return apart, left_out


def average_table(tables: Sequence[ScoreTable], problems: Sequence[Problems]) -> ScoreTable:
    """The mean of the scores over splits. Beams visit different sets: what one visited is then scored by all splits."""
    if len(tables) == 1:
        return tables[0]
    parts = {}
    for pooling in tables[0].poolings:
        columns = [table.column(pooling) for table in tables]
        masks, scores = columns[0][0], [column[1] for column in columns]
        if not all(np.array_equal(masks, others) for others, _ in columns):
            masks = np.unique(np.concatenate([others for others, _ in columns]))
            scores = [some[pooling].scores(membership(masks, some[pooling].layers)) for some in problems]
        parts[pooling] = masks, np.mean(scores, axis=0)
    return ScoreTable(parts)


@dataclass(frozen=True)
class Redraws:
    """Rows that a gain is taken on again, of all pairs: resamples, and all rows but those of each of some groups.

    The gain itself is the mean of so many `starts` of what is random in a score, as clusters are; resamples vary them
    too (`KindProblem.redrawn`).
    """

    size: int
    resamples: Sequence[Rows]
    without: Sequence[Rows]
    starts: int = 1

    @classmethod
    def of(cls, size: int, *, seed: int, resamples: int, smooth: bool) -> "Redraws":
        """Of so many pairs. Nothing is left out where scores are not smooth: the jackknife does not hold for them."""
        random = np.random.default_rng(seed)
        draws = [random.integers(size, size=size) for _ in range(resamples)]
        groups = np.array_split(random.permutation(size), min(size, _GROUPS)) if smooth else []
        without = [np.setdiff1d(np.arange(size), group) for group in groups]
        return cls(size, draws, without, starts=1 if smooth else RANDOM_STARTS)


@dataclass(frozen=True)
class RedrawnGain:
    """The gain of one split's choice: on its test pairs, on those of them that each resample holds, (resamples,), and
    without those of each group, (groups,).
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
    """The paired bootstrap over splits, each with its choice, the last layer and its test pairs.

    All pairs are resampled, and every split's gain is taken on those of its test pairs that were drawn.
    """
    smooth = all(isinstance(problem, PairProblem) and problem.metric.smooth for problem in problems.values())
    redraws = Redraws.of(len(next(iter(problems.values()))), seed=seed, resamples=resamples, smooth=smooth)
    gains = []
    for best, last, test in choices:

        def both(draws: Sequence[Rows], best: Choice = best, last: Choice = last) -> Scores:
            return np.stack([_scores(problems, choice, draws) for choice in (best, last)], axis=1)

        gains.append(paired_gain(both, test, redraws))
    return mean_gain(gains)


def paired_gain(scores: Callable[[Sequence[Rows]], Scores], test: Rows, redraws: Redraws) -> RedrawnGain:
    """The gain of one split's choice; `scores` gives those of it and of the last layer on draws: (draws, 2)."""
    tested = np.zeros(redraws.size, dtype=bool)
    tested[test] = True
    whole = [test] * redraws.starts
    found = scores([*whole, *(rows[tested[rows]] for rows in (*redraws.resamples, *redraws.without))])
    gains, resamples = found[:, 0] - found[:, 1], len(whole) + len(redraws.resamples)
    estimate = float(gains[: len(whole)].mean())
    return RedrawnGain(estimate, gains[len(whole) : resamples], gains[resamples:])


def mean_gain(gains: Sequence[RedrawnGain]) -> Gain:
    """The mean of the splits' gains, with the interval of its resamples, each drawn for all splits at once.

    Two corrections, whose effect on how often the interval covers the truth is in docs/search.md. A resample holds
    pairs twice, and two mixes that order few pairs nearly alike then differ by more than they do from sample to sample:
    resamples that vary more than the jackknife says are drawn in to its variance. And resamples hold the choices fixed,
    but pairs that report in one split choose in others, so the mean of several splits varies more than its resamples
    do: these are spread by `SPREAD`.
    """
    estimate = float(np.mean([gain.estimate for gain in gains]))
    redrawn, left_out = (np.mean([getattr(gain, name) for gain in gains], axis=0) for name in ("redrawn", "left_out"))
    scale = _jackknife_scale(redrawn, left_out) * (SPREAD if len(gains) > 1 else 1.0)
    return summarise(estimate, estimate + scale * (redrawn - estimate))


def _jackknife_scale(redrawn: Numbers, left_out: Numbers) -> float:
    """The jackknife's standard deviation as a share of the resamples', at most 1."""
    redrawn, left_out = redrawn[~np.isnan(redrawn)], left_out[~np.isnan(left_out)]
    if len(redrawn) < 2 or len(left_out) < 2 or np.ptp(redrawn) == 0:
        return 1.0
    variance = (len(left_out) - 1) * np.var(left_out)
    return min(1.0, float(np.sqrt(variance / np.var(redrawn))))


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
