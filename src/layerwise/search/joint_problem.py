"""Several tasks as one problem: a set's score is the weighted mean of its scores on all of them.

The rows of the tasks, one task after the other, are the rows of the problem, so that splits, resamples and the verdict
work on it as on a single task.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from layerwise.search.problems import Progress, Rows, Scores, SetProblem, Weights, no_progress
from layerwise.search.spaces import Masks, Space


@dataclass(frozen=True, eq=False)
class JointProblem:
    """Tasks with their weights, which sum to 1.

    Args:
        tasks: A problem for each task, all of the same layers.
        weights: The weight of each task in the mean.
    """

    tasks: tuple[SetProblem, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, tasks: Sequence[SetProblem], weights: Sequence[float]) -> "JointProblem":
        """Normalise the weights."""
        return cls(tuple(tasks), tuple(weight / sum(weights) for weight in weights))

    @property
    def scans_fast(self) -> bool:
        """Whether all tasks score all sets of a space at once."""
        return all(task.scans_fast for task in self.tasks)

    @property
    def is_mean(self) -> bool:
        """Whether all tasks' scores are means over their units."""
        return all(task.is_mean for task in self.tasks)

    @property
    def starts(self) -> int:
        """The most random seeds that a task's score is averaged over."""
        return max(task.starts for task in self.tasks)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.tasks[0].layers

    def __len__(self) -> int:
        return sum(map(len, self.tasks))

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Score every set of a space, task by task; progress counts the sets of the last task."""
        total: Scores = np.zeros(0)
        masks: Masks = np.zeros(0, dtype=np.uint64)
        for number, (task, weight) in enumerate(zip(self.tasks, self.weights, strict=True), start=1):
            callback = progress if number == len(self.tasks) else no_progress
            task_masks, scores = task.scan(space, progress=callback)
            order = np.argsort(task_masks)
            masks, weighted = task_masks[order], weight * scores[order]
            total = weighted if number == 1 else total + weighted
        return masks, total

    def scores(self, weights: Weights) -> Scores:
        """Scores of any weights or sets: (rows, layers) -> (rows,)"""
        return self._mean(lambda task, _: task.scores(weights))

    def pick(self, rows: Rows) -> "JointProblem":
        """The problem on a subset of the rows."""
        parts = rows_of_tasks(rows, list(map(len, self.tasks)))
        return replace(self, tasks=tuple(task.pick(part) for task, part in zip(self.tasks, parts, strict=True)))

    def check(self) -> None:
        """Refuse rows that one of the metrics cannot score."""
        for task in self.tasks:
            task.check()

    def redrawn(self, weights: Weights, draws: Sequence[Rows]) -> Scores:
        """Scores on resamples of the rows of all tasks: (rows, layers), draws -> (draws, rows)"""
        sizes = list(map(len, self.tasks))
        parts = [rows_of_tasks(draw, sizes) for draw in draws]
        return self._mean(lambda task, number: task.redrawn(weights, [part[number] for part in parts]))

    def _mean(self, scores: Callable[[SetProblem, int], Scores]) -> Scores:
        pairs = zip(self.tasks, self.weights, strict=True)
        total: Scores = np.sum([weight * scores(task, number) for number, (task, weight) in enumerate(pairs)], axis=0)
        return total


def rows_of_tasks(rows: Rows, sizes: Sequence[int]) -> list[Rows]:
    """Split rows of the concatenated tasks into the rows of each task; `sizes` are the tasks' numbers of rows."""
    starts = np.cumsum([0, *sizes])
    return [rows[(rows >= start) & (rows < end)] - start for start, end in pairwise(starts)]
