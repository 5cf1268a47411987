"""The known tasks: those of the package, and those that a user declares in a TOML file or in Python."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from layerwise.data.plain_files import file_task
from layerwise.data.rows import guess_format
from layerwise.data.tasks import GROUPS, Task
from layerwise.errors import InputError
from layerwise.registry import Registry, check_known, unknown
from layerwise.settings import parse_settings, parse_toml, read_toml

TASKS: Registry[Task] = Registry("task")
_FORM = "a task file is TOML with a [[task]] table for each task, which has a name, kind and file"


def add_task(task: Task) -> Task:
    """Make a task known by its name.

    >>> add_task(Task(name="my-pairs", kind="sts", file="pairs.csv")).metric
    'spearman'
    """
    return TASKS.register(task.name)(task)


def read_task_file(path: str | Path, *, data: str | None = None) -> list[Task]:
    """The tasks of a TOML file: `[[task]]` tables whose keys are those of `Task`.

    A task's file is looked for beside the task file. Tables of a recipe are left alone, so that a recipe with its tasks
    is a task file too.

    Args:
        path: The task file.
        data: A data folder whose files come first.
    """
    path = Path(path).expanduser()
    return parse_tasks(read_toml(path, remedy=_FORM), str(path), folders=[path.parent], data=data)


def parse_tasks(
    tables: Mapping[str, Any], file: str, *, folders: Sequence[Path] = (), data: str | None = None
) -> list[Task]:
    """The tasks of a TOML file's tables.

    Args:
        tables: The tables.
        file: What errors call the file.
        folders: Where the files of its tasks may be, such as the folder of the file; none: they are not looked for.
        data: A data folder whose files come first.
    """
    declared, defaults = tables.get("task"), tables.get("defaults", {})
    if not isinstance(declared, list) or not declared or not all(isinstance(table, dict) for table in declared):
        written = "; write [[task]], in double brackets" if isinstance(declared, dict) else ""
        raise InputError(f"{file}: no [[task]] table{written}; {_FORM}")
    tasks = [_parse_task(table, defaults, file, number) for number, table in enumerate(declared, start=1)]
    return [_located(task, folders, data) for task in tasks] if folders else tasks


def find_tasks(names: Iterable[str] = (), suites: Iterable[str] = (), *, data: str | None = None) -> list[Task]:
    """Tasks by name ("STS-B" is "stsb"), task file (`*.toml`), plain file and suite, each once, in this order."""
    known = known_tasks()
    tasks: dict[str, Task] = {}
    for name in names:
        for task in _named_tasks(name, known, data):
            if tasks.get(task.name, task) != task:
                raise InputError(f"two tasks are called {task.name!r}; rename one of them")
            tasks[task.name] = task
    for suite in suites:
        check_known(suite, [*dict.fromkeys(task.suite for task in known.values()), *GROUPS], "suite")
        members = GROUPS.get(suite, (suite,))
        tasks |= {name: task for name, task in known.items() if task.suite in members}
    return list(tasks.values())


def known_tasks() -> dict[str, Task]:
    """Return all tasks by name, in the order of declaration."""
    return {task.name: task for task in _package_tasks()} | {name: TASKS[name] for name in TASKS}


def _named_tasks(name: str, known: Mapping[str, Task], data: str | None) -> list[Task]:
    if name.endswith(".toml"):
        return read_task_file(name, data=data)
    return [file_task(name) if guess_format(name) else _find_task(name, known)]


def _find_task(name: str, known: Mapping[str, Task]) -> Task:
    by_key = {_key(known_name): task for known_name, task in known.items()}
    if _key(name) not in by_key:
        raise unknown("task", name, known, more="; or give a task file, NAME.toml")
    return by_key[_key(name)]


def _key(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


@cache
def _package_tasks() -> tuple[Task, ...]:
    text = (resources.files(__package__) / "catalog.toml").read_text(encoding="utf-8")
    return tuple(parse_tasks(parse_toml(text, "catalog.toml"), "catalog.toml"))


def _parse_task(table: Mapping[str, Any], defaults: Any, file: str, number: int) -> Task:
    values = _with_defaults(table, defaults, f"{file}: [[task]] number {number}")
    if not values.get("name"):
        raise InputError(f"{file}: [[task]] number {number}: name is missing; give name = ...")
    return parse_settings(Task, values, file=file)


def _with_defaults(table: Mapping[str, Any], defaults: Any, where: str) -> dict[str, Any]:
    """Return the values of a table, merged with [defaults.NAME] if it has like = "NAME"."""
    values, like = {key: value for key, value in table.items() if key != "like"}, table.get("like")
    if like is None:
        return values
    known = list(defaults) if isinstance(defaults, dict) else []
    if like not in known or not isinstance(defaults[like], dict):
        raise InputError(f"{where}: like = {like!r}, but the tables of [defaults] are: {', '.join(known) or 'none'}")
    return {**defaults[like], **values}


def _located(task: Task, folders: Sequence[Path], data: str | None) -> Task:
    """Return the task with the paths of its files in the data folder or one of these; unchanged if incomplete."""
    for folder in [*([Path(data).expanduser()] if data else []), *folders]:
        paths = [folder / Path(file).expanduser() for file in task.files]
        if all(path.is_file() for path in paths):
            file, *more = (str(path.absolute()) for path in paths)
            texts = [name for name in ("queries", "corpus") if getattr(task, name) is not None]
            moved = {name: getattr(task, name).replaced(file=path) for name, path in zip(texts, more, strict=True)}
            return task.replaced(file=file, **moved)
    return task
