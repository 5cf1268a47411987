"""A file's labels to numbers: classes by their place among the labels, scores on the task's scale."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data.rows import Row, RowSource
from layerwise.errors import InputError
from layerwise.multitask.label_name import label_name
from layerwise.multitask.task import TaskSettings

FEWEST = 2  # examples of a class in train
_SHOWN = 12


def train_labels(source: RowSource, rows: Sequence[Row], task: TaskSettings) -> tuple[str, ...]:
    """The classes: those given, or those of the training rows, in order (numbers as numbers). Each has 2 examples."""
    counts = Counter(label_name(_label(row, task)) for row in rows)
    for row in rows:
        name = label_name(_label(row, task))
        if not name:
            raise _without_label(source, row, task, "train")
        if isinstance(_label(row, task), list | dict):
            raise source.fail(row.place, f"{task.label} is {name}; expected one class, a text or a number")
        if task.labels and name not in task.labels:
            raise source.fail(row.place, f"label {name!r} is not among the labels given: {listed(task.labels)}")
        if counts[name] < FEWEST:
            raise source.fail(row.place, f"class {name!r} has one example in train; {_MORE}")
    for name in task.labels:
        if not counts[name]:
            raise InputError(f"{source.name}: class {name!r} has no example in train; {_MORE}")
    labels = task.labels or _in_order(list(counts))
    try:
        task.check_classes(len(labels))
    except InputError as error:
        raise InputError(f"{source.name}: {error}; train has {listed(labels)}") from error
    return labels


_MORE = f"give {FEWEST} or more, or leave the class out of every split"


def class_numbers(
    source: RowSource, rows: Sequence[Row], task: TaskSettings, labels: Sequence[str], role: str
) -> NDArray[np.int64]:
    """Each row's class as its place among `labels`: (n,)"""
    numbers = {name: number for number, name in enumerate(labels)}
    found = np.empty(len(rows), dtype=np.int64)
    for place, row in enumerate(rows):
        name = label_name(_label(row, task))
        if not name:
            raise _without_label(source, row, task, role)
        if name not in numbers:
            raise source.fail(
                row.place,
                f"{role} has {name!r}, a label never seen in training, which has {listed(labels)}; mend the label, or "
                f"give rows of it to train",
            )
        found[place] = numbers[name]
    return found


def scores(source: RowSource, rows: Sequence[Row], task: TaskSettings, role: str) -> NDArray[np.float64]:
    """Each row's score, checked against the scale: (n,)"""
    found = np.array([_score(source, row, task, role) for row in rows], dtype=np.float64)
    if np.ptp(found) == 0:
        raise InputError(
            f"{source.name}: every score of {role} is {found[0]:g} ({len(found)} rows); a correlation needs different "
            f"ones"
        )
    return found


def is_unlabelled(rows: Sequence[Row], task: TaskSettings, labels: Sequence[str]) -> bool:
    """Whether no row has a label: nothing is there, or -1, which is what hidden test labels are written as."""
    hidden = {"", "-1"} - set(labels)
    if task.kind == "similarity" and task.scale[0] <= -1 <= task.scale[1]:
        hidden = {""}
    return all(label_name(_label(row, task)) in hidden for row in rows)


def listed(labels: Sequence[str]) -> str:
    """Some of the labels, for errors."""
    shown = ", ".join(map(repr, labels[:_SHOWN]))
    return shown if len(labels) <= _SHOWN else f"{shown}, … ({len(labels)} labels)"


def _label(row: Row, task: TaskSettings) -> Any:
    return row.values[len(task.columns)]


def _without_label(source: RowSource, row: Row, task: TaskSettings, role: str) -> InputError:
    value = _label(row, task)
    came = f" ({value!r} is none)" if isinstance(value, str) and value.strip() else ""
    return source.fail(row.place, f"no label in {task.label!r}{came}; every row of {role} needs one")


def _score(source: RowSource, row: Row, task: TaskSettings, role: str) -> float:
    value, (low, high) = _label(row, task), task.scale
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise source.fail(row.place, f"{task.label} {value!r} is not a number; every row of {role} needs one")
    if not low <= score <= high:
        raise source.fail(
            row.place, f"{task.label} {score:g} is outside the scale {low:g} to {high:g}; mend it, or set scale = [...]"
        )
    return score


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Sorted, as numbers where all of them are."""
    numbers = [_number(name) for name in names]
    if any(number is None for number in numbers):
        return tuple(sorted(names))
    return tuple(name for _, name in sorted(zip(numbers, names, strict=True), key=lambda pair: (pair[0] or 0, pair[1])))


def _number(name: str) -> float | None:
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
