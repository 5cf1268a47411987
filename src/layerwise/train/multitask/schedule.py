"""Schedules the rows of the tasks in each step, as a function of seed and epoch.

A pass over a task reshuffles its rows and cuts them into batches; the last one may be smaller. Leave out tasks of
weight 0, whose steps would have no effect.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evidence import check_seed
from layerwise.registry import check_known
from layerwise.train.multitask.settings import ITERATIONS


@dataclass(frozen=True)
class TaskBatch:
    """Rows of one task: their numbers (n,), and a mask (n,) that is False for padding, which is row 0."""

    task: int
    rows: NDArray[np.int64]
    row_mask: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_padding(self) -> bool:
        """Whether the batch is only padding."""
        return not self.row_mask.any()

    def part(self, rank: int, world: int) -> "TaskBatch":
        """Return the rows of one of `world` processes; all have the same number, the last ones padded."""
        if world == 1:
            return self
        size = -(-len(self) // world)
        missing, part = size * world - len(self), slice(rank * size, (rank + 1) * size)
        rows, row_mask = np.pad(self.rows, (0, missing)), np.pad(self.row_mask, (0, missing))
        return TaskBatch(self.task, rows[part], row_mask[part])


def steps(sizes: Sequence[int], batch_sizes: Sequence[int], iteration: str) -> int:
    """Return the number of steps of an epoch.

    "cycling" and "padding": the batches of the task that has most; "truncating": of the one that has fewest;
    "proportional" and "temperature": all tasks' batches together.
    """
    _check(sizes, batch_sizes, iteration, 1.0)
    batches = [-(-size // batch) for size, batch in zip(sizes, batch_sizes, strict=True)]
    if iteration in ("proportional", "temperature"):
        return sum(batches)
    return min(batches) if iteration == "truncating" else max(batches)


def schedule(
    sizes: Sequence[int],
    batch_sizes: Sequence[int],
    *,
    iteration: str,
    seed: int,
    epoch: int,
    temperature: float = 1.0,
) -> Iterator[tuple[TaskBatch, ...]]:
    """Iterate over the steps of an epoch, each with its batches.

    "cycling": every step has a batch of each task; an exhausted task starts again. "padding": every batch has exactly
    `batch_sizes[task]` rows; what a task lacks is padding. "truncating": each task once, until the first is exhausted.
    "proportional": one task a step, drawn with a probability proportional to its size; "temperature": to
    size^(1/temperature).

    Args:
        sizes: Each task's rows.
        batch_sizes: Each task's rows a batch.
        iteration: As above.
        seed: 0 or more. A task's order depends on seed, epoch and its place among the tasks, not on other tasks.
        epoch: From 0.
        temperature: For "temperature".
    """
    _check(sizes, batch_sizes, iteration, temperature)
    check_seed(seed)
    count = steps(sizes, batch_sizes, iteration)
    randoms = [np.random.default_rng([seed, epoch, task]) for task in range(len(sizes))]
    per_task = list(zip(sizes, batch_sizes, randoms, strict=True))
    if iteration in ("proportional", "temperature"):
        probabilities = _probabilities(sizes, temperature if iteration == "temperature" else 1.0)
        drawn = np.random.default_rng([seed, epoch, len(sizes)]).choice(len(sizes), size=count, p=probabilities)
        return _drawn(drawn, [_cycled(task, *options) for task, options in enumerate(per_task)])
    make = _padded if iteration == "padding" else _cycled
    return islice(zip(*(make(task, *options) for task, options in enumerate(per_task)), strict=True), count)


def _drawn(tasks: NDArray[np.int64], batches: Sequence[Iterator[TaskBatch]]) -> Iterator[tuple[TaskBatch, ...]]:
    for task in tasks:
        yield (next(batches[task]),)


def _cycled(task: int, size: int, batch: int, random: np.random.Generator) -> Iterator[TaskBatch]:
    """Iterate over passes endlessly."""
    while True:
        for rows in _pass(size, batch, random):
            yield TaskBatch(task, rows, np.ones(len(rows), dtype=np.bool_))


def _padded(task: int, size: int, batch: int, random: np.random.Generator) -> Iterator[TaskBatch]:
    """Yield one pass, then padding endlessly."""
    for rows in _pass(size, batch, random):
        yield TaskBatch(task, np.pad(rows, (0, batch - len(rows))), np.arange(batch) < len(rows))
    while True:
        yield TaskBatch(task, np.zeros(batch, dtype=np.int64), np.zeros(batch, dtype=np.bool_))


def _pass(size: int, batch: int, random: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    order = random.permutation(size).astype(np.int64, copy=False)
    for start in range(0, size, batch):
        yield order[start : start + batch]


def _probabilities(sizes: Sequence[int], temperature: float) -> NDArray[np.float64]:
    """Return probabilities proportional to size^(1/temperature), (tasks,), by logarithms to avoid overflow."""
    powers = np.log(np.asarray(sizes, dtype=np.float64)) / temperature
    shares = np.exp(powers - powers.max())
    probabilities: NDArray[np.float64] = shares / shares.sum()
    return probabilities


def _check(sizes: Sequence[int], batch_sizes: Sequence[int], iteration: str, temperature: float) -> None:
    check_known(iteration, ITERATIONS, "iteration")
    if len(sizes) != len(batch_sizes) or not sizes:
        raise InputError(f"{len(sizes)} sizes and {len(batch_sizes)} batch sizes came; give one of each for every task")
    for task, (size, batch) in enumerate(zip(sizes, batch_sizes, strict=True)):
        if size < 1 or batch < 1:
            raise InputError(f"task {task} has {size} rows in batches of {batch}; both must be 1 or more")
    if not 0 < temperature < float("inf"):
        raise InputError(f"temperature {temperature}: give a number above 0")
