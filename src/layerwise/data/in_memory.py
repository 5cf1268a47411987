"""Rows from whatever holds them in memory or on disk: frames, data sets, tuples, dicts, paths, names of tasks."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layerwise.data.catalog import find_tasks
from layerwise.data.locate import load_task
from layerwise.data.pairs import pairs_in_memory, read_pairs
from layerwise.data.plain_files import file_task, is_pair_file
from layerwise.data.task_rows import TaskRows, read_task
from layerwise.data.tasks import Task
from layerwise.errors import InputError

_TEXTS, _LABELS = ("sentence1", "sentence2"), ("score", "label")
_HELP = (
    "give a file, a task, TaskRows, a pandas or polars frame or datasets.Dataset with the columns sentence1, sentence2 "
    "and score, a list of (text, text, score), or a list of texts"
)


def tasks_of(data: Any, *, scored: bool = True) -> list[TaskRows]:
    """The rows of one or several tasks.

    Args:
        data: A path or name (of pairs or tasks), `TaskRows`, a `Task`, a frame, a data set, tuples or dicts of rows; or
            a list of paths, tasks or rows of several tasks.
        scored: Whether pairs need scores.
    """
    if isinstance(data, TaskRows):
        return [data]
    if isinstance(data, Task):
        return [load_task(data, None)]
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
        if is_pair_file(name):
            return [read_task(file_task(name), name, empty=None) if scored else read_pairs(name, _TEXTS, None)]
        return [load_task(task, None) for task in find_tasks([name])]
    if (
        isinstance(data, list | tuple)
        and data
        and all(isinstance(one, str | os.PathLike | Task | TaskRows) for one in data)
    ):
        return [rows for one in data for rows in tasks_of(one, scored=scored)]
    return [_pairs(data, scored=scored)]


def are_texts(data: Any) -> bool:
    """Whether this is a list of plain texts rather than of files or tasks."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(text, str) for text in data)


def _pairs(data: Any, *, scored: bool) -> TaskRows:
    columns = _columns(data)
    if columns is not None:
        names = [*_TEXTS, *(name for name in _LABELS if name in columns)][:3]
        missing = [name for name in _TEXTS if name not in columns]
        if missing or (scored and len(names) < 3):
            raise InputError(f"{type(data).__name__} has the columns {', '.join(columns)}; {_HELP}")
        return pairs_in_memory(*(list(columns[name]) for name in names), source=type(data).__name__)
    rows = [_row(row) for row in data] if isinstance(data, Iterable) else []
    if not rows or len({len(row) for row in rows}) > 1 or not 2 + scored <= len(rows[0]) <= 3:
        raise InputError(f"{type(data).__name__} is no data that can be searched; {_HELP}")
    return pairs_in_memory(
        *(list(column) for column in zip(*rows, strict=True)), source=f"{len(rows):,} pairs in memory"
    )


def _columns(data: Any) -> Mapping[str, Sequence[Any]] | None:
    """The columns of a frame or data set by name; None for other data."""
    if isinstance(data, Mapping):
        return data
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)  # datasets and Arrow; frames
    if names is None or isinstance(data, list | tuple):
        return None
    return {str(name): data[name] for name in names}


def _row(row: Any) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        return tuple(row[name] for name in (*_TEXTS, *_LABELS) if name in row)
    return tuple(row) if isinstance(row, list | tuple) else ()
