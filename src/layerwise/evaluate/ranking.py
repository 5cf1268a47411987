"""Which differences between many runs are real: each against the best, by resampled rows and by resampled tasks.

By rows: would the difference hold on other rows of the same tasks? By tasks: would it hold on other tasks of the
kind? Every resample is the same for all runs. A run whose interval reaches 0 is tied with the best.

The best is known only after looking, and the best of many equal runs looks better than most of them. So the intervals
hold for all pairs of runs at once: their width in standard errors is the 95 % quantile of the largest standardised
deviation of any pair (max-t), widened by Student's t for few rows or tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evaluate.compare import mismatch, not_resampled, redrawn_scores
from layerwise.evaluate.results import Run, TaskResult
from layerwise.evidence import (
    Difference,
    check_resamples,
    check_seed,
    differences_from_best,
    mean_of_groups,
    row_counts,
    task_deviations,
)

Numbers = NDArray[np.floating[Any]]
ALL_SUITES = "all suites"
FEWEST_TASKS = 5  # which say something of other tasks


@dataclass(frozen=True)
class Ranked:
    """One run: its mean over the tasks, and its differences from the best if they can be resampled."""

    name: str
    mean: float
    scores: dict[str, float]
    by_rows: Difference | None
    by_tasks: Difference | None


@dataclass(frozen=True)
class Ranking:
    """Runs on the tasks that all of them have, the best first.

    Attributes:
        suite: The suite of the tasks, or "all suites": the mean of the suites' means.
        tasks: What the means are of.
        resampled: Those of the tasks whose rows are resampled.
        left_out: Tasks and runs that are not compared, and why.
        runs: The best first.
    """

    suite: str
    tasks: tuple[str, ...]
    resampled: tuple[str, ...]
    left_out: dict[str, str]
    runs: tuple[Ranked, ...]

    def tied(self, by: str) -> list[str]:
        """Return the names of the best and of the runs tied with it, by "rows" or by "tasks"; none if unknown."""
        differences = {run.name: getattr(run, f"by_{by}") for run in self.runs}
        return [name for name, difference in differences.items() if difference is not None and difference.tied]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"tied_by_rows": self.tied("rows"), "tied_by_tasks": self.tied("tasks")}


def rank_runs(runs: Mapping[str, Run], *, seed: int = 0, resamples: int = 2000) -> list[Ranking]:
    """Rank runs by name on their common tasks: a ranking per suite, then one of all suites.

    Tasks whose rows cannot be resampled count for the means and when tasks are resampled. A run without a score on some
    task, such as layer 0 of the first token, which is constant, is left out.
    """
    check_resamples(resamples)
    check_seed(seed)
    if len(runs) < 2:
        raise InputError("a ranking needs two runs or more; give other results, or a result of several mixes")
    scored, without = _with_scores(runs)
    if len(scored) < 2:  # then tasks are left out
        scored, without = dict(runs), {}
    runs = scored
    results, left_out = _common(runs)
    if not results:
        reasons = "; ".join(f"{task}: {note}" for task, note in left_out.items())
        raise InputError(f"no task that all results have can be compared{': ' * bool(reasons)}{reasons}")
    tasks = [
        _draw(by_run, np.random.default_rng([seed, number]), resamples)
        for number, by_run in enumerate(results.values())
    ]
    suites: dict[str, list[_Task]] = {}
    for task in tasks:
        suites.setdefault(task.suite, []).append(task)
    random = np.random.default_rng([seed, len(tasks)])
    groups = {suite: [members] for suite, members in suites.items()}
    if len(suites) > 1:
        groups[ALL_SUITES] = list(suites.values())
    left_out |= without
    return [_ranking(suite, list(runs), members, left_out, random) for suite, members in groups.items()]


def _with_scores(runs: Mapping[str, Run]) -> tuple[dict[str, Run], dict[str, str]]:
    """The runs that have a number on each of their tasks, and why the others are left out."""
    without = {
        name: f"it has no score on {task}"
        for name, run in runs.items()
        for task, result in run.results.items()
        if not np.isfinite(result.score)
    }
    return {name: run for name, run in runs.items() if name not in without}, without


@dataclass(frozen=True, eq=False)
class _Task:
    """The runs' scores (runs,), and how far they are from them on the same resamples of rows (runs, resamples).

    `rows` is 0 where there are none to resample.
    """

    name: str
    suite: str
    scores: Numbers
    deviations: Numbers
    rows: int


def _common(runs: Mapping[str, Run]) -> tuple[dict[str, list[TaskResult]], dict[str, str]]:
    """The results of each task that all runs have and that can be compared, and why other tasks cannot."""
    first, *others = runs.values()
    results: dict[str, list[TaskResult]] = {}
    left_out: dict[str, str] = {}
    for task in dict.fromkeys(name for run in runs.values() for name in run.results):
        by_run = [run.results[task] for run in (first, *others) if task in run.results]
        notes = [note for result in by_run[1:] if (note := mismatch(by_run[0], result))]
        if len(by_run) < len(runs):
            left_out[task] = f"only {len(by_run)} of {len(runs)} results have it"
        elif notes:
            left_out[task] = notes[0]
        elif not all(np.isfinite(result.score) for result in by_run):
            left_out[task] = "a score is not a number"
        else:
            results[task] = by_run
    return results, left_out


def _draw(by_run: Sequence[TaskResult], random: np.random.Generator, resamples: int) -> _Task:
    first = by_run[0]
    scores = np.array([result.score for result in by_run])
    if any(not_resampled(first, result) for result in by_run):
        return _Task(first.task, first.suite, scores, np.zeros((len(by_run), resamples)), 0)
    rows = len(first.items)
    blocks = [
        np.stack([redrawn_scores(result, counts) for result in by_run])
        for counts in row_counts(random, rows, resamples)
    ]
    once = np.stack([redrawn_scores(result, np.ones((1, rows))) for result in by_run])
    deviations = np.concatenate(blocks, axis=1) - once
    return _Task(first.task, first.suite, scores, np.where(np.isfinite(deviations), deviations, 0.0), rows)


def _ranking(
    suite: str,
    names: Sequence[str],
    suites: Sequence[Sequence[_Task]],
    left_out: dict[str, str],
    random: np.random.Generator,
) -> Ranking:
    tasks = [task for members in suites for task in members]
    means = mean_of_groups([[task.scores for task in members] for members in suites])
    order = np.argsort(-means, kind="stable")
    best = int(order[0])
    by_rows = _by_rows(suites, best)
    by_tasks = _by_tasks(suites, best, random) if len(tasks) - len(suites) >= FEWEST_TASKS - 1 else None
    ranked = [
        Ranked(
            names[run],
            float(means[run]),
            {task.name: float(task.scores[run]) for task in tasks},
            None if by_rows is None else by_rows[run],
            None if by_tasks is None else by_tasks[run],
        )
        for run in order
    ]
    resampled = tuple(task.name for task in tasks if task.rows)
    return Ranking(suite, tuple(task.name for task in tasks), resampled, left_out, tuple(ranked))


def _by_rows(suites: Sequence[Sequence[_Task]], best: int) -> list[Difference] | None:
    """Return differences over the tasks whose rows can be resampled; None if there are none."""
    groups = [resampled for members in suites if (resampled := [task for task in members if task.rows])]
    if not groups:
        return None
    means = mean_of_groups([[task.scores for task in members] for members in groups])
    deviations = mean_of_groups([[task.deviations for task in members] for members in groups])
    freedom = sum(task.rows - 1 for members in groups for task in members)
    return differences_from_best(means, deviations, best, freedom)


def _by_tasks(suites: Sequence[Sequence[_Task]], best: int, random: np.random.Generator) -> list[Difference]:
    """Return differences over tasks that are drawn anew within each suite."""
    resamples = suites[0][0].deviations.shape[1]
    by_suite = [np.stack([task.scores for task in members], axis=1) for members in suites]
    deviations = np.mean([task_deviations(scores, resamples, random) for scores in by_suite], axis=0)
    means = mean_of_groups([[task.scores for task in members] for members in suites])
    return differences_from_best(means, deviations, best, freedom=sum(len(members) - 1 for members in suites))
