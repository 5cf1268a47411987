"""The tasks that are known: those of the package, and those that a user declares by a TOML file or in Python."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from layerwise.data.tasks import SUITES, Source, Task
from layerwise.errors import InputError
from layerwise.registry import Registry, did_you_mean

TASKS: Registry[Task] = Registry("task")
_KNOWN = {field.name for field in fields(Task)}


def add_task(task: Task) -> Task:
    """Make a task known by its name.

    >>> add_task(Task("my-pairs", "sts", "pairs.csv")).metric
    'spearman'
    """
    return TASKS.register(task.name)(task)


def read_task_file(path: str | Path) -> list[Task]:
    """The tasks of a TOML file, `[[task]]` tables whose keys are those of `Task`; files are named relative to it."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such task file; a task file is TOML with a [[task]] table for each task")
    tasks = _parse(path.read_bytes(), str(path))
    return [replace(task, file=str((path.parent / task.file).absolute())) for task in tasks]


def find_tasks(names: Iterable[str] = (), suites: Iterable[str] = ()) -> list[Task]:
    """Tasks by name ("STS-B" is "stsb"), by task file (`*.toml`) and by suite, each once, in this order."""
    known = known_tasks()
    found: dict[str, Task] = {}
    for name in names:
        for task in read_task_file(name) if name.endswith(".toml") else [_named(name, known)]:
            if found.get(task.name, task) != task:
                raise InputError(f"two tasks are called {task.name!r}; rename one of them")
            found[task.name] = task
    for suite in suites:
        wanted = SUITES if suite == "all" else (suite,)
        members = {name: task for name, task in known.items() if task.suite in wanted}
        if not members:
            suites_known = dict.fromkeys(task.suite for task in known.values())
            raise InputError(f"Unknown suite {suite!r}. Known: {', '.join(suites_known)}, all")
        found.update(members)
    return list(found.values())


def known_tasks() -> dict[str, Task]:
    """Every task by its name, in the order of declaration."""
    own = {task.name: task for task in _own()}
    return own | {name: TASKS[name] for name in TASKS}


def _named(name: str, known: Mapping[str, Task]) -> Task:
    plain = {_plain(known_name): task for known_name, task in known.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    guess = did_you_mean(name.lower(), known)
    raise InputError(f"Unknown task {name!r}.{guess} Known: {', '.join(known)}; or give a task file, NAME.toml")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


@cache
def _own() -> tuple[Task, ...]:
    text = (resources.files(__package__) / "catalog.toml").read_bytes()
    return tuple(_parse(text, "catalog.toml"))


def _parse(text: bytes, name: str) -> list[Task]:
    try:
        declared = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: not TOML: {error}") from error
    tables = declared.get("task")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{name}: no [[task]] table; each task is one, with name, kind and file")
    defaults = declared.get("defaults", {})
    return [_task(table, defaults, f"{name}: task {number}") for number, table in enumerate(tables, 1)]


def _with_defaults(table: dict[str, Any], defaults: dict[str, dict[str, Any]], where: str) -> dict[str, Any]:
    """A table `like` some defaults, its own words first."""
    like = table.get("like")
    if like is None:
        return table
    if not isinstance(defaults, dict) or not isinstance(defaults.get(str(like)), dict):
        known = ", ".join(defaults) if isinstance(defaults, dict) else ""
        raise InputError(f"{where} is like {like!r}; the defaults there are {known or 'none'}")
    return {**defaults[like], **{key: value for key, value in table.items() if key != "like"}}


def _task(table: dict[str, Any], defaults: dict[str, dict[str, Any]], where: str) -> Task:
    table = _with_defaults(table, defaults, where)
    if unknown := sorted(set(table) - _KNOWN):
        raise InputError(f"{where} has {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    if missing := [key for key in ("name", "kind", "file") if not isinstance(table.get(key), str)]:
        raise InputError(f'{where} has no {missing[0]}; give {missing[0]} = "..."')
    _check_types(table, where)
    source = table.get("source")
    try:
        return Task(**{**table, "source": Source(**source) if source else None})
    except (TypeError, AttributeError) as error:
        raise InputError(f"{where}: {error}") from error
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _check_types(table: dict[str, Any], where: str) -> None:
    """TOML has numbers, texts and tables: each key takes one kind."""
    for key, value in table.items():
        if not _TYPES[key](value):
            raise InputError(f"{where}: {key} is {value!r}; expected {_EXPECTED[key]}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _splits(value: Any) -> bool:
    some = value.values() if isinstance(value, dict) else [None]
    return all(_is_text(names) or (isinstance(names, list | tuple) and all(map(_is_text, names))) for names in some)


def _counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(count) is int for count in value.values())


def _source(value: Any) -> bool:
    keys = ("kind", "repo", "revision", "reader")
    return isinstance(value, dict) and all(_is_text(value.get(key)) for key in keys)


_TYPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "kind", "file", "suite", "metric", "only", "digest", "licence", "note"), _is_text),
    **dict.fromkeys(("duplicates", "mixable"), lambda value: isinstance(value, bool)),
    **{"columns": _texts, "splits": _splits, "rows": _counts, "source": _source},
}
_EXPECTED = {
    **dict.fromkeys(_TYPES, "a text"),
    **dict.fromkeys(("duplicates", "mixable"), "true or false"),
    "columns": 'names of columns, such as { left = "a", right = "b" }',
    "splits": 'names of splits, such as { test = ["test"] }',
    "rows": "counts, such as { test = 1379 }",
    "source": "a table with kind, repo, revision and reader",
}
