"""Where a task's rows are: in a data folder, else among what was fetched before, else where they are published."""

import logging
import os
from pathlib import Path

from layerwise.data.task_rows import TaskRows, read_task
from layerwise.data.tasks import Task
from layerwise.errors import InputError
from layerwise.places import default_cache_folder

log = logging.getLogger(__name__)


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder given, or `$LAYERWISE_DATA`; None where there is neither. It must exist."""
    name = folder or os.environ.get("LAYERWISE_DATA")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_dir():
        said = "the data folder" if folder else "LAYERWISE_DATA"
        raise InputError(
            f"{path}: {said} does not exist; make it, name another, or leave it out to fetch tasks "
            f"with `layerwise data fetch`"
        )
    return path


def fetched_folder() -> Path:
    """Where fetched tasks are kept."""
    return default_cache_folder() / "data"


def find_file(task: Task, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of a task, or None where this machine has none. A task file's own path comes first."""
    if _is_own(task):
        own = Path(task.file)
        return own if own.is_file() else None
    given = data_folder(folder)
    places = [*([given] if given else []), fetched_folder()]
    return next((place / task.file for place in places if (place / task.file).is_file()), None)


def require(task: Task, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of a task; None where it has to be fetched; an error where it can't be."""
    path = find_file(task, folder)
    if path is None and task.source is None:
        raise InputError(f"{task.file}: no such file of task {task.name!r}; {_remedy(task)}")
    return path


def obtain(task: Task, folder: str | os.PathLike[str] | None = None) -> Path:
    """The file of a task, fetched if it is nowhere on this machine."""
    path = require(task, folder)
    if path is None:
        from layerwise.data.fetch import fetch

        log.info("%s is not on this machine: fetching it from %s", task.name, task.source)
        path = fetch(task, fetched_folder())
    return path


def load_task(task: Task, folder: str | os.PathLike[str] | None = None) -> TaskRows:
    """A task's rows, fetched if they are nowhere on this machine."""
    return read_task(task, obtain(task, folder))


def _is_own(task: Task) -> bool:
    """Declared by a user: its file is where the declaration says, whatever its suite."""
    return task.suite == "own" or Path(task.file).is_absolute()


def _remedy(task: Task) -> str:
    if _is_own(task):
        return "check the path in its task file, which is relative to that file"
    return "put it into the folder that --data or LAYERWISE_DATA names"
