"""Recipes of several tasks: TOML files of exactly the settings in `layerwise.multitask.settings`.

[model], [mixing], [train], [dev] and a [[task]] for each task; unknown keys and values of the wrong kind are refused
with the place and the nearest known word.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib import resources
from pathlib import Path
from typing import Any

from layerwise.errors import InputError, LayerwiseError
from layerwise.multitask.settings import MixingSettings, MultitaskDev, MultitaskRecipe, TaskSettings
from layerwise.train.recipe import (
    Tables,
    checked_text,
    did_you_mean,
    known_keys,
    overridden,
    read_recipe_file,
    settings_of,
)
from layerwise.train.recipe_toml import toml_lines
from layerwise.train.settings import ModelSettings, OptimiserSettings

_TABLES = {"model": ModelSettings, "mixing": MixingSettings, "train": OptimiserSettings, "dev": MultitaskDev}
_TEXTS = ("name", "about", "reached")


def multitask_recipe_names() -> list[str]:
    """The recipes of the package."""
    return sorted(path.name.removesuffix(".toml") for path in _shipped().iterdir() if path.name.endswith(".toml"))


def load_multitask_recipe(name_or_file: str | Path, sets: Sequence[str] = ()) -> MultitaskRecipe:
    """A recipe by its name or file, with `sets` such as "task.sst.weight=0" put in.

    >>> load_multitask_recipe("cs224n", ["train.batch_size=16"]).train.batch_size
    16
    """
    text, where = multitask_recipe_text(str(name_or_file))
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not TOML: {error}") from error
    return parse_multitask_recipe(overridden(tables, sets, _place), where=where)


def parse_multitask_recipe(tables: Tables, *, where: str = "recipe") -> MultitaskRecipe:
    """From the tables of a TOML file."""
    known_keys(tables, {*_TABLES, *_TEXTS, "task"}, where)
    given: dict[str, Any] = {
        name: settings_of(kind, tables.get(name, {}), where, f"[{name}]") for name, kind in _TABLES.items()
    }
    given |= {name: checked_text(tables[name], f"{where}: {name}") for name in _TEXTS if name in tables}
    given.setdefault("name", Path(where).stem)
    try:
        return MultitaskRecipe(**given, tasks=_tasks(tables.get("task", []), where))
    except LayerwiseError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error


def multitask_toml(recipe: MultitaskRecipe) -> str:
    """A TOML text that `parse_multitask_recipe` makes the same recipe of; every setting stands in it, defaults too."""
    parts = [toml_lines({name: getattr(recipe, name) for name in _TEXTS})]
    parts += [f"[{name}]\n{toml_lines(asdict(getattr(recipe, name)))}" for name in _TABLES]
    parts += [f"[[task]]\n{toml_lines(asdict(task))}" for task in recipe.tasks]
    return "\n".join(parts)


def multitask_recipe_text(name: str) -> tuple[str, str]:
    """The TOML text of a recipe, and what errors call it."""
    known = multitask_recipe_names()
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise InputError(f"{path}: no such recipe file; the package has {', '.join(known)}")
        return read_recipe_file(path), str(path)
    if name not in known:
        raise InputError(f"Unknown recipe {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}")
    return (_shipped() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml"


def _tasks(tables: Any, where: str) -> tuple[TaskSettings, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{where}: tasks are [[task]] tables, in double brackets")
    return tuple(_task(table, where, number) for number, table in enumerate(tables, start=1))


def _task(table: Tables, where: str, number: int) -> TaskSettings:
    for key in ("name", "kind", "file", "columns"):
        if key not in table:
            which = f"task {table['name']!r}" if "name" in table else f"[[task]] number {number}"
            raise InputError(f"{where}: {which} has no {key}; each has a name, kind, file and columns")
    splits = table.get("splits")
    if isinstance(splits, dict):  # one name stands for a list of it
        named = {role: [names] if isinstance(names, str) else names for role, names in splits.items()}
        table = table | {"splits": named}
    task: TaskSettings = settings_of(TaskSettings, table, where, f"task {table['name']!r}")
    return task


def _place(tables: Tables, parts: Sequence[str], text: str) -> Tables:
    """The table that a dotted key is in; tasks are known by their names."""
    if parts[0] == "task" and len(parts) == 3:
        tasks: dict[str, Tables] = {str(table.get("name")): table for table in tables.get("task", [])}
        if parts[1] not in tasks:
            guess = did_you_mean(parts[1], list(tasks))
            raise InputError(f"--set {text!r}: no task {parts[1]!r}.{guess} Known: {', '.join(tasks)}")
        return tasks[parts[1]]
    if parts[0] in _TABLES and len(parts) == 2:
        table: Tables = tables.setdefault(parts[0], {})
        return table
    if parts[0] in _TEXTS and len(parts) == 1:
        return tables
    keys = [f"{name}.{field.name}" for name, kind in _TABLES.items() for field in fields(kind)]
    guess = did_you_mean(".".join(parts), keys)
    raise InputError(f"--set {text!r}: no such table.{guess} Known: {', '.join([*_TABLES, 'task.NAME'])}")


def _shipped() -> Any:
    return resources.files(__package__) / "recipes"
