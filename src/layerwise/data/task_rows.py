"""A task's rows, read and checked: texts, labels, subsets and which rows train, choose and test."""

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data.rows import Row, RowSource, text_of
from layerwise.data.tasks import Task
from layerwise.errors import InputError, MissingColumnError

log = logging.getLogger(__name__)

Rows = NDArray[np.intp]
EMPTY = "."  # what SentEval's own examples encode in place of an empty sentence


class NoSubsetError(InputError):
    """A file that several tasks share holds nothing of this one."""


@dataclass(frozen=True)
class TaskRows:
    """Everything that a task's file holds of it.

    `labels` are grades (sts), names of classes (classification) or 0 and 1 (retrieval); `right` is empty for single
    texts. `splits` has the rows of each role, and "test" always; `empty` counts the empty texts, which became ".".
    """

    task: Task
    left: list[str]
    right: list[str]
    labels: list[Any]
    subsets: list[str]
    splits: dict[str, Rows]
    empty: int

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def digest(self) -> str:
        """A hash of the rows in their order, whatever file format they came in."""
        hashed, columns = sha256(), [column for column in (self.left, self.right, self.labels) if column]
        for row in zip(*columns, strict=True):
            hashed.update(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        for role, rows in sorted(self.splits.items()):
            hashed.update(role.encode() + rows.astype("<i8").tobytes())
        return hashed.hexdigest()[:32]

    @property
    def counts(self) -> dict[str, int]:
        """Role -> its rows; "all" for folded rows."""
        return {role if self.task.splits else "all": len(rows) for role, rows in self.splits.items()}

    def pick(self, rows: Rows) -> "TaskRows":
        """Only these rows, all of which are tested."""
        columns = (self.left, self.right, self.labels, self.subsets)
        left, right, labels, subsets = ([column[row] for row in rows] if column else [] for column in columns)
        return TaskRows(self.task, left, right, labels, subsets, {"test": np.arange(len(rows))}, self.empty)

    @property
    def texts(self) -> list[str]:
        """Every different text once, in order."""
        return list(dict.fromkeys([*self.left, *self.right]))

    def places(self) -> tuple[Rows, Rows | None]:
        """Where each row's left and right text stands among `texts`: (rows,) each; no right for single texts."""
        numbers = {text: number for number, text in enumerate(self.texts)}
        left, right = (np.array([numbers[text] for text in side], dtype=np.intp) for side in (self.left, self.right))
        return left, right if self.right else None


def read_task(task: Task, path: str | Path) -> TaskRows:
    """All rows of a task's file; an error names the file, the row and the remedy.

    Where the task declares splits, rows of any other are none of its rows, and need no label.
    """
    columns = {place: name for place, name in task.columns.items() if name}
    source = RowSource.of(str(path), tuple(columns.values()))
    if source.format == "text":
        raise InputError(f"{path}: a text file has no columns; task {task.name!r} needs {_listed(columns)}")
    found: dict[str, list[Any]] = {place: [] for place in columns}
    empty, named = 0, set[str]()
    for values in _values(source, task, columns, named):
        for place, value in values.items():
            filled = value
            if place in ("left", "right") and not value.strip():
                filled, empty = EMPTY, empty + 1
            found[place].append(filled)
    if not found["left"] and not named:
        if task.only:
            raise NoSubsetError(f"{path}: no rows of the subset {task.only!r}, which is all of task {task.name!r}")
        raise InputError(f"{path}: no rows; task {task.name!r} needs {_listed(columns)}")
    if empty:
        log.info("%s: %d empty texts are encoded as %r, as SentEval does", task.name, empty, EMPTY)
    splits = _splits(task, found.get("split", []), len(found["left"]), named, str(path))
    texts = found["left"], found.get("right", [])
    return TaskRows(task, *texts, found.get("label", []), found.get("subset", []), splits, empty)


def _values(source: RowSource, task: Task, columns: dict[str, str], named: set[str]) -> Iterator[dict[str, Any]]:
    """Checked values by place, one row at a time; `named` gathers the file's splits, those too that are left out."""
    declared = {name for own in task.splits.values() for name in own}
    try:
        for row in source:
            given = dict(zip(columns, row.values, strict=True))
            if task.only and str(given.get("subset")) != task.only:
                continue
            if declared and "split" in given:
                named.add(str(given["split"]))
                if str(given["split"]) not in declared:
                    continue
            for number, place in enumerate(columns):
                if place in ("left", "right"):
                    given[place] = text_of(source, row, number)
                elif place in ("subset", "split"):
                    given[place] = str(given[place])
            if "label" in given:
                given["label"] = _label(source, row, given["label"], task, columns["label"])
            yield given
    except MissingColumnError as error:
        raise InputError(f"{error}; task {task.name!r} needs {_listed(columns)}") from error


def _label(source: RowSource, row: Row, value: Any, task: Task, column: str) -> Any:
    if task.kind == "classification":
        if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
            raise source.fail(row.place, f"{column} is {value!r}; every row of task {task.name!r} needs a class")
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise source.fail(row.place, f"{column} {value!r} is not a number; task {task.name!r} needs one in each row")
    return number


def _splits(task: Task, given: list[str], rows: int, named: set[str], path: str) -> dict[str, Rows]:
    """Role -> rows. Without declared splits every row is tested (and folded, where classes are learned)."""
    if not task.splits:
        return {"test": np.arange(rows)}
    names = np.array(given)
    splits = {role: np.flatnonzero(np.isin(names, own)) for role, own in task.splits.items()}
    for role, found in splits.items():
        if not len(found):
            raise InputError(
                f"{path}: no rows of the split {'/'.join(task.splits[role])} ({role}) of task {task.name!r}; "
                f"its column {task.columns['split']!r} has {', '.join(sorted(named))}"
            )
    if "test" not in splits:
        raise InputError(f"task {task.name!r} has splits but no test; say which rows test")
    return splits


def _listed(columns: dict[str, str]) -> str:
    return "the columns " + ", ".join(f"{name} ({place})" for place, name in columns.items())
