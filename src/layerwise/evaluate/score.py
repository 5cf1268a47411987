"""Graded pairs or classes by one set of embeddings: rows and vectors to an outcome, as the protocol says."""

from collections.abc import Callable
from typing import Any

import numpy as np

from layerwise.data import Rows, Task, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evaluate.classes import is_random, score_classes, split_accuracies
from layerwise.evaluate.outcomes import Outcome
from layerwise.evaluate.protocols import Protocol
from layerwise.evaluate.splits import score_splits
from layerwise.evaluate.sts import score_sts

Scorer = Callable[[TaskRows, Array, Protocol], Outcome]


def score_task(rows: TaskRows, vectors: Array, protocol: Protocol) -> Outcome:
    """`vectors` are those of `rows.texts`, in their order: (texts, width). Of graded pairs every row is scored."""
    return _SCORERS[rows.task.kind](rows, vectors, protocol)


def decides(task: Task, protocol: Protocol) -> dict[str, Any]:
    """The part of a protocol that decides the outcomes of a task."""
    if task.kind == "retrieval":
        return {"protocol": "search", "search": protocol.facts()["search"]}
    if task.kind == "sts" and protocol.name != "lc":
        return {"protocol": "sts", "split": protocol.split}
    seeds = {"seeds": list(protocol.seeds)} if is_random(task, protocol) else {}
    return {"protocol": protocol.name, **seeds}


def scored_rows(rows: TaskRows, protocol: Protocol) -> Rows:
    """The rows that a score is of."""
    if protocol.name == "lc" and not rows.task.mixable:
        raise InputError(
            f"task {rows.task.name!r} can't be split at random, as the protocol 'lc' does: {rows.task.note}; "
            f"leave it out, or use another protocol"
        )
    if protocol.name == "lc" and rows.task.kind != "retrieval":
        return np.arange(len(rows))
    split = protocol.split
    if split != "test" and rows.task.kind != "sts":
        raise InputError(f"--split {split} is for STS; task {rows.task.name!r} is scored on its test rows")
    if split not in rows.splits:
        raise InputError(f"task {rows.task.name!r} has no {split} rows; it has {', '.join(rows.splits)}")
    return rows.splits[split]


def sides(rows: TaskRows, vectors: Array) -> tuple[Array, Array | None]:
    """The vectors of left and right texts, row by row."""
    left, right = rows.positions()
    return vectors[left], None if right is None else vectors[right]


def _sts(rows: TaskRows, vectors: Array, protocol: Protocol) -> Outcome:
    left, right = sides(rows, vectors)
    assert right is not None  # noqa: S101 - a task of pairs
    gold = np.asarray(rows.labels, dtype=np.float64)
    if protocol.name == "lc":
        return score_splits(left, right, gold, seeds=protocol.seeds)
    return score_sts(left, right, gold, rows.subsets)


def _classes(rows: TaskRows, vectors: Array, protocol: Protocol) -> Outcome:
    left, right = sides(rows, vectors)
    score = split_accuracies if protocol.name == "lc" else score_classes
    return score(rows, left, right, protocol)


_SCORERS: dict[str, Scorer] = {"sts": _sts, "classification": _classes}
