"""A task's file to labelled rows: texts by column, classes as numbers or scores, by role (train, dev, test).

What can't be used is one error that names the file, the row and the remedy.
"""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from layerwise.data.rows import Row, RowSource, written_text_of
from layerwise.errors import InputError, MissingColumnError
from layerwise.multitask.labels import class_numbers, is_unlabelled, listed, scores, train_labels
from layerwise.multitask.task import TaskSettings
from layerwise.train.contrastive.corpus import locate_file as found_file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelledRows:
    """The rows of one role: n texts a column, and (n,) class numbers (int64) or scores (float64)."""

    columns: tuple[tuple[str, ...], ...]
    targets: NDArray[Any]

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class LabelledTask:
    """A task with its rows. `labels` are the classes' names by their numbers: the settings' `label_names`, else the
    file's own; none for similarity.

    `parts` has "train", "dev" and, where its rows carry labels, "test".
    """

    settings: TaskSettings
    labels: tuple[str, ...]
    parts: dict[str, LabelledRows]

    @property
    def loss(self) -> str:
        """The loss by its name: "cross-entropy", "binary" or "mse"."""
        return self.settings.loss_for(len(self.labels))

    @property
    def outputs(self) -> int:
        """How many numbers the head gives for a row."""
        return self.settings.outputs_for(len(self.labels))


def read_labelled(task: TaskSettings, folder: str | os.PathLike[str] | None = None) -> LabelledTask:
    """Read a task's file: the one at its path, else the one of that name in the data folder, as `train` finds its text.

    Rows of a test split that has no labels (empty, or -1) are left out; those of train and dev need one each.

    Args:
        task: What to read, and what for.
        folder: The data folder, else `$LAYERWISE_DATA`.
    """
    path = found_file(task.file, folder, remedy=f"say where the file of task {task.name!r} is with --data FOLDER")
    source = RowSource.of(path, (*task.columns, task.label, task.split_column))
    found = _by_role(source, task)
    if task.limit is None or task.limit >= len(found["train"]):
        return _labelled(source, found, task)
    try:
        return _labelled(source, found | {"train": found["train"][: task.limit]}, task)
    except InputError as error:
        raise InputError(f"{error} (limit = {task.limit} leaves {task.limit} rows of train)") from error


def _labelled(source: RowSource, found: dict[str, list[Row]], task: TaskSettings) -> LabelledTask:
    """Texts and targets of each role's rows."""
    labels = () if task.kind == "similarity" else train_labels(source, found["train"], task)
    if "test" in found and is_unlabelled(found["test"], task, labels):
        log.info("task %s: its %d test rows have no labels and are left out", task.name, len(found.pop("test")))
    parts, columns = {}, range(len(task.columns))
    for role, rows in found.items():
        texts = tuple(tuple(written_text_of(source, row, column) for row in rows) for column in columns)
        parts[role] = LabelledRows(texts, _targets(source, rows, task, labels, role))
    _tell_repeated(task, parts)
    return LabelledTask(task, task.label_names or labels, parts)


def _tell_repeated(task: TaskSettings, parts: Mapping[str, LabelledRows]) -> None:
    """Rows that are trained on are no test: a score on them is too good."""
    trained = set(zip(*parts["train"].columns, strict=True))
    for role in parts.keys() - {"train"}:
        count = sum(texts in trained for texts in zip(*parts[role].columns, strict=True))
        if count:
            log.warning(
                "task %s: %d of its %d %s rows have texts that train has too, so that their scores are too good",
                task.name, count, len(parts[role]), role,
            )  # fmt: skip


def _by_role(source: RowSource, task: TaskSettings) -> dict[str, list[Row]]:
    """Each role's rows, in the file's order."""
    roles = {name: role for role, names in task.splits.items() for name in names}
    found: dict[str, list[Row]] = {role: [] for role in task.splits}
    splits = Counter[str]()
    needed = f"task {task.name!r} needs the columns {', '.join(source.columns)}"
    try:
        for row in source:
            split = str(row.values[-1])
            splits[split] += 1
            if split in roles:
                found[roles[split]].append(row)
    except MissingColumnError as error:
        raise InputError(f"{error}; {needed}") from error
    if not splits:
        raise InputError(f"{source.name}: no rows; {needed}")
    unused = {split: count for split, count in splits.items() if split not in roles}
    if unused:
        count = sum(unused.values())
        log.info("task %s: %d rows are left out, as no split names their %s", task.name, count, listed(list(unused)))
    for role, rows in found.items():
        if not rows:
            raise InputError(
                f"{source.name}: no rows of the split {'/'.join(task.splits[role])} ({role}) of task {task.name!r}; "
                f"its column {task.split_column!r} has {listed(list(splits))}; add such rows, or say which are "
                f"{role} by splits = {{{role} = …}}"
            )
    return found


def _targets(
    source: RowSource, rows: Sequence[Row], task: TaskSettings, labels: Sequence[str], role: str
) -> NDArray[Any]:
    if task.kind == "similarity":
        return scores(source, rows, task, role)
    return class_numbers(source, rows, task, labels, role)
