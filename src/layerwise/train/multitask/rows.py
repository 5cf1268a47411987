"""The training rows of a task by role: columns of texts, and classes as numbers or scores.

Training is stricter than evaluation: texts must not be empty, every class needs two examples, and dev and test must not
have classes that train lacks. An error names the file, the row and the remedy.
"""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Rows, Task, TaskRows, as_number, check_scale, label_name, listed, load_task, repeated
from layerwise.errors import InputError
from layerwise.predict import TaskSetup

log = logging.getLogger(__name__)

MIN_EXAMPLES = 2  # of a class in train
_MORE = f"give {MIN_EXAMPLES} or more, or leave the class out of every split"


@dataclass(frozen=True)
class RoleRows:
    """The rows of one role: columns of n texts, and (n,) class numbers (int64) or scores (float64)."""

    columns: tuple[tuple[str, ...], ...]
    targets: NDArray[Any]

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class TrainingTask:
    """A task with its rows.

    Args:
        setup: Its declaration and its objective.
        labels: The names of its classes by their numbers: the declared `label_names`, else the file's; none for sts.
        parts: "train", "dev" and, where its rows have labels, "test".
    """

    setup: TaskSetup
    labels: tuple[str, ...]
    parts: dict[str, RoleRows]

    @property
    def name(self) -> str:
        """The task's name."""
        return self.setup.name

    @property
    def loss(self) -> str:
        """The loss by its name: "cross-entropy", "binary" or "mse"."""
        return self.setup.loss_for(len(self.labels))

    @property
    def outputs(self) -> int:
        """The number of the head's outputs per row."""
        return self.setup.outputs_for(len(self.labels))


def load_training_task(setup: TaskSetup, folder: str | os.PathLike[str] | None = None) -> TrainingTask:
    """Read the file of a task for training.

    Test rows are left out if none has a label (empty, or -1); all rows of train and dev need one.

    Args:
        setup: The task and its objective.
        folder: The data folder, else `$LAYERWISE_DATA`.
    """
    check_splits(setup.task)
    rows = load_task(setup.task, folder, empty=None, unlabelled=("test",))
    if rows.unused:
        count, splits = sum(rows.unused.values()), listed(list(rows.unused))
        log.info("task %s: %d rows are left out, as no split names their %s", setup.name, count, splits)
    limit, train = setup.objective.limit, rows.splits["train"]
    if limit is None or limit >= len(train):
        return _training_task(setup, rows)
    try:
        return _training_task(setup, replace(rows, splits=rows.splits | {"train": train[:limit]}))
    except InputError as error:
        raise InputError(f"{error} (limit = {limit} leaves {limit} rows of train)") from error


def check_splits(task: Task) -> None:
    """Raise for a task that cannot be trained: train and dev rows must be declared and disjoint."""
    for role in ("train", "dev"):
        if not task.splits.get(role):
            raise InputError(
                f"task {task.name!r}: splits declare no {role} rows, which training needs; write "
                f'splits = {{ train = ["train"], dev = ["dev"] }}, with the values of the column that holds them'
            )
    names = [name for values in task.splits.values() for name in values]
    if twice := repeated(names):
        raise InputError(f"task {task.name!r}: splits: {twice!r} comes twice; rows that train neither choose nor test")
    columns = [name for kind, name in task.columns.items() if name and kind != "subset"]
    if twice := repeated(columns):
        raise InputError(f"task {task.name!r}: columns: {twice!r} comes twice; texts, label and split differ")


def _training_task(setup: TaskSetup, rows: TaskRows) -> TrainingTask:
    labels = _classes(setup, rows) if setup.task.has_classes else ()
    splits = dict(rows.splits)
    if "test" in splits and _is_unlabelled(setup, rows, labels):
        log.info("task %s: its %d test rows have no labels and are left out", setup.name, len(splits.pop("test")))
    parts = {role: _part(setup, rows, members, labels, role) for role, members in splits.items()}
    _warn_of_repeated(setup, parts)
    return TrainingTask(setup, setup.task.label_names or labels, parts)


def _part(setup: TaskSetup, rows: TaskRows, members: Rows, labels: Sequence[str], role: str) -> RoleRows:
    columns = [rows.left, *([rows.right] if rows.right else [])]
    texts = tuple(tuple(column[row] for row in members) for column in columns)
    if setup.task.has_classes:
        return RoleRows(texts, _class_numbers(rows, members, labels, role))
    return RoleRows(texts, _scores(setup, rows, members, role))


def _classes(setup: TaskSetup, rows: TaskRows) -> tuple[str, ...]:
    """Return the declared classes, or the sorted ones of the training rows; raise for too few examples."""
    train = rows.splits["train"]
    names = [_class_name(rows, row) for row in train]
    counts = Counter(names)
    for row, name in zip(train, names, strict=True):
        if counts[name] < MIN_EXAMPLES:
            raise rows.fail(row, f"class {name!r} has one example in train; {_MORE}")
    for name in setup.task.labels:
        if not counts[name]:
            raise InputError(f"{rows.file}: class {name!r} has no example in train; {_MORE}")
    labels = setup.task.labels or _in_order(list(counts))
    try:
        setup.check_classes(len(labels))
    except InputError as error:
        raise InputError(f"{rows.file}: {error}; train has {listed(labels)}") from error
    return labels


def _class_name(rows: TaskRows, row: int) -> str:
    name = label_name(rows.labels[row])
    if not name:
        column, value = rows.task.columns["label"], rows.labels[row]
        shown = f" ({value!r} is none)" if value and value.strip() else ""
        raise rows.fail(row, f"no label in {column!r}{shown}; every row needs a class")
    return name


def _class_numbers(rows: TaskRows, members: Rows, labels: Sequence[str], role: str) -> NDArray[np.int64]:
    """Return the class number of each row, (n,)."""
    numbers = {name: number for number, name in enumerate(labels)}
    names = [_class_name(rows, row) for row in members]
    for row, name in zip(members, names, strict=True):
        if name not in numbers:
            raise rows.fail(
                row,
                f"{role} has {name!r}, a label never seen in training, which has {listed(labels)}; correct the label, "
                f"or add rows of it to train",
            )
    return np.array([numbers[name] for name in names], dtype=np.int64)


def _scores(setup: TaskSetup, rows: TaskRows, members: Rows, role: str) -> NDArray[np.float64]:
    """Return the score of each row, checked against the scale, (n,)."""
    column = setup.task.columns["label"]
    for row in members:
        if rows.labels[row] is None:
            raise rows.fail(row, f"no score in {column!r}; every row needs one")
        check_scale(rows.labels[row], setup.scale, rows.fail, row, column)
    scores = np.array([rows.labels[row] for row in members], dtype=np.float64)
    if np.ptp(scores) == 0:
        raise InputError(
            f"{rows.file}: every score of {role} is {scores[0]:g} ({len(scores)} rows); a correlation needs different "
            f"ones"
        )
    return scores


def _is_unlabelled(setup: TaskSetup, rows: TaskRows, labels: Sequence[str]) -> bool:
    """Whether all test labels are missing or -1, which stands for hidden labels."""
    low, high = setup.scale
    is_score = not setup.task.has_classes and low <= -1 <= high
    hidden = {""} if is_score else {"", "-1"} - set(labels)
    return all(label_name(rows.labels[row]) in hidden for row in rows.splits["test"])


def _warn_of_repeated(setup: TaskSetup, parts: Mapping[str, RoleRows]) -> None:
    """Warn of dev and test rows whose texts are in train, as their scores are inflated."""
    trained = set(zip(*parts["train"].columns, strict=True))
    for role in parts.keys() - {"train"}:
        count = sum(texts in trained for texts in zip(*parts[role].columns, strict=True))
        if count:
            log.warning(
                "task %s: %d of its %d %s rows have texts that train has too, so that their scores are too good",
                setup.name, count, len(parts[role]), role,
            )  # fmt: skip


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Sort names, as numbers if all of them are."""
    numbers = [as_number(name) for name in names]
    if any(number is None for number in numbers):
        return tuple(sorted(names))
    return tuple(name for _, name in sorted(zip(numbers, names, strict=True), key=lambda pair: (pair[0] or 0, pair[1])))
