"""Two evaluations against each other, task by task and row by row: the paired bootstrap."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data import redraw_of
from layerwise.errors import InputError
from layerwise.evaluate.results import Run, TaskResult
from layerwise.evidence import Gain, check_resamples, check_seed, row_counts, summarise
from layerwise.metrics import Redraw, redraw_spearman

Numbers = NDArray[np.floating[Any]]
NO_ROWS = "no scores of single rows for this protocol"


@dataclass(frozen=True)
class Comparison:
    """B minus A on one task, or on the average of all; `note` is the reason if they are not compared."""

    task: str
    metric: str
    a: float
    b: float
    gain: Gain | None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def compare_runs(a: Run, b: Run, *, seed: int = 0, resamples: int = 2000) -> list[Comparison]:
    """Compare every task that both runs have, then the averages of those that can be compared, by suite.

    The rows of a task are resampled, the same ones for both runs, for the difference with its 95 % interval and
    two-sided p-value. What cannot be resampled, such as means of subsets, has a note. Averages are of tasks that share
    a suite and a metric.
    """
    check_resamples(resamples)
    check_seed(seed)
    common = [name for name in a.results if name in b.results]
    if not common:
        raise InputError(f"no task in common: one has {_names(a)}, the other {_names(b)}")
    lines: list[Comparison] = []
    drawn: dict[tuple[str, str], list[tuple[float, float, float, Numbers]]] = {}
    for name in common:
        first, second = a.results[name], b.results[name]
        if note := mismatch(first, second) or not_resampled(first, second):
            lines.append(Comparison(name, first.metric, first.score, second.score, None, note))
            continue
        differences = _differences(first, second, np.random.default_rng([seed, len(lines)]), resamples)
        estimate = _estimate(first, second)
        lines.append(Comparison(name, first.metric, first.score, second.score, summarise(estimate, differences)))
        if np.isfinite(estimate):
            drawn.setdefault((first.suite, first.metric), []).append((first.score, second.score, estimate, differences))
    for (suite, _), rows in drawn.items():
        if len(rows) > 1:
            means = [float(np.mean([row[i] for row in rows])) for i in range(3)]
            gain = summarise(means[2], np.mean([row[3] for row in rows], axis=0))
            label = "average" if len(drawn) == 1 else f"{suite} average"
            lines.append(Comparison(label, "", means[0], means[1], gain, f"of {len(rows)} tasks"))
    return lines


def gain_on_pairs(a: Numbers, b: Numbers, gold: Numbers, *, seed: int = 0, resamples: int = 2000) -> Gain:
    """Compute the gain in Spearman × 100 of similarities b over a on the same graded pairs, (pairs,) each."""

    def difference(counts: Numbers) -> Numbers:
        return 100 * (redraw_spearman(b, gold, counts) - redraw_spearman(a, gold, counts))

    redrawn = [difference(counts) for counts in row_counts(np.random.default_rng(seed), len(gold), resamples)]
    return summarise(float(difference(np.ones((1, len(gold))))[0]), np.concatenate(redrawn))


def _names(run: Run) -> str:
    return ", ".join(run.results) or "none"


def mismatch(first: TaskResult, second: TaskResult) -> str:
    """Return why the scores of two results cannot be compared, or an empty string."""
    if first.stamp.get("rows_digest") != second.stamp.get("rows_digest"):
        return "made on other rows"
    if first.stamp.get("split") != second.stamp.get("split"):
        return f"other splits: {first.stamp.get('split')} and {second.stamp.get('split')}"
    if first.metric != second.metric:
        return f"other metrics: {first.metric} and {second.metric}"
    if first.stamp.get("protocol") != second.stamp.get("protocol"):
        return f"other protocols: {first.stamp.get('protocol')} and {second.stamp.get('protocol')}"
    seeds = first.stamp.get("seeds"), second.stamp.get("seeds")
    if None not in seeds and seeds[0] != seeds[1]:  # None if nothing was random
        return f"other seeds: {seeds[0]} and {seeds[1]}"
    return ""


def not_resampled(first: TaskResult, second: TaskResult) -> str:
    """Return why the rows of two results cannot be resampled, or an empty string."""
    if not len(first.items) or len(first.items) != len(second.items):
        return NO_ROWS
    if _redraw(first) is None:
        remedy = "; evaluate with --aggregate all" if first.metric.endswith("mean") else ""
        return f"{first.metric} cannot be resampled{remedy}"
    return ""


def _redraw(result: TaskResult) -> Redraw | None:
    return redraw_of(result.stamp.get("kind", ""), result.metric)


def _differences(first: TaskResult, second: TaskResult, random: np.random.Generator, resamples: int) -> Numbers:
    """Compute B minus A on resamples of the rows, (resamples,)."""
    parts = [
        redrawn_scores(second, counts) - redrawn_scores(first, counts)
        for counts in row_counts(random, len(first.items), resamples)
    ]
    return np.concatenate(parts)


def _estimate(first: TaskResult, second: TaskResult) -> float:
    """Compute B minus A over all rows, the centre of the resamples; means of folds or splits differ slightly."""
    counts = np.ones((1, len(first.items)))
    return float((redrawn_scores(second, counts) - redrawn_scores(first, counts))[0])


def redrawn_scores(result: TaskResult, counts: Numbers) -> Numbers:
    """Compute a task's score × 100 on resamples given by row counts: (draws, rows) -> (draws,)"""
    redraw = _redraw(result)
    if redraw is None:
        raise InputError(f"{result.metric} cannot be resampled")
    return 100 * redraw(result.items, result.gold, counts)
