"""Locates a task's rows: at their path, in a data folder, among fetched tasks, or at their published source."""

import logging
import os
from pathlib import Path
from typing import Any

from layerwise.data.rows import guess_format
from layerwise.data.task_rows import TaskRows, read_declared
from layerwise.data.tasks import Task
from layerwise.data.text_files import path_beside
from layerwise.errors import InputError
from layerwise.places import default_cache_folder

log = logging.getLogger(__name__)

Folder = str | os.PathLike[str] | None


def data_folder(folder: Folder = None) -> Path | None:
    """Return `folder` or `$LAYERWISE_DATA`, which must exist; None if neither is set."""
    name = folder or os.environ.get("LAYERWISE_DATA")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_dir():
        origin = "the data folder" if folder else "LAYERWISE_DATA"
        raise InputError(
            f"{path}: {origin} does not exist; create it, name another, or leave it out to fetch tasks with "
            f"`layerwise data fetch`"
        )
    return path


def fetched_folder() -> Path:
    """The folder of fetched tasks."""
    return default_cache_folder() / "data"


def find_file(task: Task, folder: Folder = None) -> Path | None:
    """Return the file of a task's rows; None if any of its files is missing. A user's task may name a path."""
    path = Path(task.file).expanduser()
    if _is_declared_by_user(task) and (path.is_file() or path.is_absolute()):
        return path if all(path_beside(task, path, file).is_file() for file in task.files) else None
    data = data_folder(folder)
    places = [*([data] if data else []), fetched_folder()]
    return next((place / path for place in places if all((place / file).is_file() for file in task.files)), None)


def require_file(task: Task, folder: Folder = None) -> Path | None:
    """Return the file of a task; None if it must be fetched; raise if it cannot be."""
    path = find_file(task, folder)
    if path is None and task.source is None:
        data = data_folder(folder)
        searched = f"nor in the data folder {data}" if data else "and there is no data folder"
        remedy = (
            "check the path in its declaration, which is relative to the task file"
            if _is_declared_by_user(task)
            else "put it into the folder that --data or LAYERWISE_DATA names"
        )
        *others, last = task.files
        needed = f" (it needs {', '.join(others)} and {last})" if others else ""
        raise InputError(f"{task.file}: no such file of task {task.name!r}{needed}, {searched}; {remedy}")
    if path is not None and not guess_format(str(path)):
        raise InputError(
            f"{path}: its ending {path.suffix!r} names no format; rename it to .csv, .tsv, .jsonl or .parquet"
        )
    return path


def obtain(task: Task, folder: Folder = None) -> Path:
    """The file of a task, fetched if it is nowhere on this machine."""
    path = require_file(task, folder)
    if path is None:
        from layerwise.data.fetch import fetch_task

        log.info("%s is not on this machine: fetching it from %s", task.name, task.source)
        path = fetch_task(task, fetched_folder())
    return path


def load_task(task: Task, folder: Folder = None, **options: Any) -> TaskRows:
    """Load a task's rows, fetching them if they are missing; options as for `read_task`."""
    return read_declared(task, obtain(task, folder), **options)


def _is_declared_by_user(task: Task) -> bool:
    return task.suite == "own" or Path(task.file).is_absolute()
