"""The gain of a choice over its baseline on unseen units, with an interval and a p-value by the paired bootstrap.

Both are scored on the same drawn units. There are up to four corrections, whose effect on the interval's coverage is
in docs/search.md:

- Resamples contain units several times, so that the gain of two similar mixes varies more between them than between
  samples: if their variance is larger than the jackknife's, it is scaled down to it.
- Resamples hold the choices fixed, but test units of one split are dev units of others, so that the mean of several
  splits varies more than its resamples: they are scaled up by `SPREAD`.
- Where scores are means over units, the spread is widened as if two units more had reported.
- Resamples of few units, or of few groups of them, are too narrow: they are widened to Student's t of their number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from layerwise.errors import InputError
from layerwise.evidence.resamples import Redraws
from layerwise.evidence.splits import Splits

Rows = NDArray[np.intp]
Numbers = NDArray[np.floating[Any]]
Scores = Callable[[Sequence[Rows]], Numbers]  # draws of units -> (draws, 2), the scores of the choice and the baseline
SPREAD = 1.1  # factor on the spread of the resamples of several splits, from the simulation of benchmarks/verdict.py
_SIGNIFICANT = 0.05
_QUANTILES = (0.025, 0.975)


@dataclass(frozen=True)
class Gain:
    """The gain over a baseline on unseen units: estimate, 95 % interval, two-sided p-value of no gain."""

    mean: float
    low: float
    high: float
    p_value: float

    @property
    def is_sure(self) -> bool:
        """Whether it differs from 0, by the interval and by the p-value, which differ slightly in how they count."""
        return self.p_value < _SIGNIFICANT and (self.low > 0 or self.high < 0)


def paired_gain(
    scores: Scores | Sequence[Scores],
    splits: Splits | Sequence[Rows],
    *,
    size: int,
    seed: int = 0,
    resamples: int = 2000,
    smooth: bool = True,
    groups: ArrayLike | None = None,
    starts: int = 1,
    are_means: bool = False,
) -> Gain:
    """Compute the mean gain over splits, each scored on its own reporting units.

    Units are resampled for all splits at once, so that units which report in several splits count in each.

    Args:
        scores: A function for each split, or one for all, from draws of units to the scores of the choice and the
            baseline: draws -> (draws, 2).
        splits: The splits, or the reporting units of each.
        size: The total number of units.
        seed: The seed of the resamples.
        resamples: Their number.
        smooth: Whether no single unit changes the score much.
        groups: The group of every unit, drawn as a whole; those of `splits` by default.
        starts: Random seeds over which a score is averaged, if it depends on one.
        are_means: Whether scores are means over units of values from 0 to 1, such as accuracy or NDCG.
    """
    tests = [split.test for split in splits] if isinstance(splits, Splits) else list(splits)
    functions = [scores] * len(tests) if callable(scores) else list(scores)
    if not tests or len(functions) != len(tests):
        raise InputError(f"{len(functions)} functions of scores for {len(tests)} splits; give one for each split")
    if groups is None and isinstance(splits, Splits):
        groups = splits.groups
    redraws = Redraws.of(size, seed=seed, resamples=resamples, smooth=smooth, groups=groups, starts=starts)
    gains = [_redraw_gain(function, test, redraws) for function, test in zip(functions, tests, strict=True)]
    estimate = float(np.mean([gain.estimate for gain in gains]))
    redrawn, left_out = (np.mean([getattr(gain, name) for gain in gains], axis=0) for name in ("redrawn", "left_out"))
    scale = _jackknife_scale(redrawn, left_out) * (SPREAD if len(gains) > 1 else 1.0) * _widening(tests, redraws)
    spread = scale * (redrawn - estimate)
    return summarise(estimate, estimate + (_with_two_more(spread, tests) if are_means else spread))


def summarise(estimate: float, redrawn: Numbers) -> Gain:
    """Summarise an estimate with its interval and p-value from resamples; undefined ones (NaN) are ignored."""
    gains = redrawn[~np.isnan(redrawn)]
    if not len(gains):
        return Gain(estimate, *[float("nan")] * 3)
    low, high = (float(value) for value in np.quantile(gains, _QUANTILES))
    tail = min(int((gains <= 0).sum()), int((gains >= 0).sum()))
    return Gain(estimate, low, high, min(1.0, 2 * (tail + 1) / (len(gains) + 1)))


def _with_two_more(spread: Numbers, tests: Sequence[Rows]) -> Numbers:
    """Widen a spread as if two units more had reported, one with a gain of a half, one with a loss of a half.

    Near-equal mixes differ on few units, of which a resample of few units may hold none: its spread is then too narrow,
    or 0. Agresti and Min correct paired proportions so, with gains and losses of 1, which is too wide for means of
    graded values (benchmarks/verdict.py).
    """
    extra = 0.5 / (len(np.unique(np.concatenate(tests))) + 2)
    deviation = float(np.nanstd(spread)) if np.isfinite(spread).any() else 0.0
    normal: Numbers = ndtri((np.arange(len(spread)) + 0.5) / len(spread))
    return spread * np.sqrt(1 + (extra / deviation) ** 2) if deviation else extra * normal


def item_scores(items: Numbers) -> Scores:
    """Return the function of scores that are means over units, such as accuracy or MRR: (units, 2)"""

    def scores(draws: Sequence[Rows]) -> Numbers:
        undefined = np.full(items.shape[1], np.nan)  # for a resample without any reporting unit
        return np.stack([items[draw].mean(axis=0) if len(draw) else undefined for draw in draws])

    return scores


@dataclass(frozen=True)
class _RedrawnGain:
    """The gain of one split: on all its test units, on those in each resample, and in each jackknife sample."""

    estimate: float
    redrawn: Numbers
    left_out: Numbers


def _redraw_gain(scores: Scores, test: Rows, redraws: Redraws) -> _RedrawnGain:
    is_tested = np.zeros(redraws.size, dtype=bool)
    is_tested[test] = True
    whole = [test] * redraws.starts
    drawn = (units[is_tested[units]] for units in (*redraws.resamples, *redraws.without))
    best, baseline = np.asarray(scores([*whole, *drawn])).T
    gains, resamples = best - baseline, len(whole) + len(redraws.resamples)
    return _RedrawnGain(float(gains[: len(whole)].mean()), gains[len(whole) : resamples], gains[resamples:])


def _jackknife_scale(redrawn: Numbers, left_out: Numbers) -> float:
    """The jackknife's standard deviation relative to the resamples', at most 1."""
    redrawn, left_out = redrawn[~np.isnan(redrawn)], left_out[~np.isnan(left_out)]
    if len(redrawn) < 2 or len(left_out) < 2 or np.ptp(redrawn) == 0:
        return 1.0
    variance = (len(left_out) - 1) * np.var(left_out)
    return min(1.0, float(np.sqrt(variance / np.var(redrawn))))


def _widening(tests: Sequence[Rows], redraws: Redraws) -> float:
    """The factor from the spread of resamples of few units, or of few whole groups, to Student's t.

    It counts those that report in any split: one that only chooses in one split reports in another. Units of several
    splits are not widened: `SPREAD` does that.
    """
    if redraws.groups is None and len(tests) > 1:
        return 1.0
    reporting = np.unique(np.concatenate(tests))
    count = len(reporting) if redraws.groups is None else len(np.unique(redraws.groups[reporting]))
    if count < 2:
        return float("nan")  # nothing is known of others
    return float(np.sqrt(count / (count - 1)) * stdtrit(count - 1, _QUANTILES[1]) / ndtri(_QUANTILES[1]))
