"""Pairs of texts as rows of a task: from a plain file, a task by its name, memory, or the demonstration."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data.catalog import find_tasks
from layerwise.data.demo import demo_pairs
from layerwise.data.locate import load_task
from layerwise.data.plain_files import is_pair_file
from layerwise.data.rows import guess_format
from layerwise.data.task_rows import TaskRows, read_task
from layerwise.data.tasks import Task
from layerwise.errors import InputError, MissingColumnError

_COLUMNS = ("sentence1", "sentence2")
_SCORE = "score"


def pairs_in_memory(
    left: Sequence[str],
    right: Sequence[str],
    scores: Sequence[float] | NDArray[np.floating] | None = None,
    *,
    source: str = "pairs in memory",
) -> TaskRows:
    """Pairs of texts, with scores or without, as rows."""
    grades = [] if scores is None else [nan if score is None else float(score) for score in scores]
    count = len(left) if scores is None else len(grades)
    if not len(left) == len(right) == count:
        raise InputError(f"{len(left)} and {len(right)} texts, {count} scores: the lengths differ")
    if not len(left):
        raise InputError(f"{source}: no pairs; give at least two")
    broken = next((row for row, grade in enumerate(grades) if not isfinite(grade)), None)
    if broken is not None:
        raise InputError(
            f"{source}: score {broken} is {grades[broken]}, not a finite number; give one, or leave the pair out"
        )
    task = Task(name="pairs", kind="sts", file="-", columns=_columns(_COLUMNS, _SCORE if grades else None))
    splits = {"test": np.arange(len(left))}
    return TaskRows(task, list(left), list(right), grades, [], splits, origin=source)


def demo_rows() -> TaskRows:
    """The graded pairs that come with the package."""
    pairs = demo_pairs()
    left, right = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    source = "the demonstration pairs of the package"
    return pairs_in_memory(left, right, [pair.score for pair in pairs], source=source)


def read_pairs(
    path: str,
    columns: tuple[str, str] = _COLUMNS,
    score: str | None = _SCORE,
    *,
    where: tuple[str, str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    kind: str = "sts",
) -> TaskRows:
    """All rows of a plain file of pairs, as those of the task that the arguments declare.

    Args:
        path: CSV, TSV, JSONL or Parquet; "-" is standard input.
        columns: The columns of the two texts; the same name twice reads one column for both.
        score: The column of the scores; None where there are none.
        where: (column, value): only rows with this value.
        format: One of the formats of `layerwise.data.rows`; by default the file's ending says which.
        encoding: Of a file that is text; UTF-8 without it.
        delimiter: Between the fields of a CSV or TSV file, where it is another than its format's.
        kind: "sts", or "retrieval" (queries and passages).
    """
    subset, only = where or ("", None)
    named = _columns(columns, score) | {"subset": subset}
    task = Task(name="pairs", kind=kind, file=path, columns=named, only=only)
    rows = read_task(task, path, format=format, encoding=encoding, delimiter=delimiter, empty=None)
    return replace(rows, origin=Path(path).name)


def load_pairs(
    name: str,
    *,
    columns: tuple[str, str] = _COLUMNS,
    score: str | None = None,
    split: str = "test",
    data: str | os.PathLike[str] | None = None,
    **reading: str | None,
) -> TaskRows:
    """Load the pairs of a file (CSV, TSV, JSONL, Parquet), or of an STS task by its name or task file (*.toml).

    Args:
        name: The file or the task.
        columns: The columns of a file's two texts.
        score: The column of a file's scores; by default "score" where the file has it, else no scores.
        split: Which rows of a task that has splits.
        data: The data folder of tasks, as for `layerwise evaluate`.
        reading: format, encoding and delimiter of a file, as for `read_pairs`.
    """
    if is_pair_file(name) or reading.get("format"):
        return _from_file(name, columns, score, reading)
    option = next((option for option, value in reading.items() if value is not None), None)
    if option is not None:
        raise InputError(f"{name}: is a task, which declares its file; --{option} is for files")
    return _from_task(name, split, data)


def _from_file(path: str, columns: tuple[str, str], score: str | None, reading: Mapping[str, Any]) -> TaskRows:
    if Path(path).is_file() and (reading.get("format") or guess_format(path)) in ("", "text"):
        raise InputError(f"{path}: no file of pairs by its ending; give CSV, TSV, JSONL or Parquet")
    try:
        return _read(path, columns, score, reading)
    except MissingColumnError as error:
        raise InputError(f"{error}; name the columns by --left, --right and --score") from error


def _read(path: str, columns: tuple[str, str], score: str | None, reading: Mapping[str, Any]) -> TaskRows:
    try:
        return read_pairs(path, columns, score or _SCORE, **reading)
    except MissingColumnError:
        if score is not None:
            raise
    return read_pairs(path, columns, None, **reading)


def _from_task(name: str, split: str, data: str | os.PathLike[str] | None) -> TaskRows:
    task, *more = find_tasks([name])
    if more or task.kind != "sts":
        problem = "holds several tasks" if more else f"is a {task.kind} task"
        raise InputError(f"{name!r} {problem}; measures are taken on one task of graded pairs, such as stsb")
    rows = load_task(task, data)
    role = split if task.splits else "test"
    source = f"{task.name}, {split}" if task.splits else task.name
    return replace(rows.of_role(role), origin=source)


def _columns(texts: tuple[str, str], score: str | None) -> dict[str, str]:
    return {"left": texts[0], "right": texts[1], "label": score or ""}
