"""Recipes of multitask trainings: TOML files of the settings in `layerwise.multitask.settings`.

A recipe has the tables [model], [mixing], [train] and [dev]; its tasks are those of `tasks = ["tasks.toml", "sst5"]`
(task files beside it, or names of the catalogue) and those of its [[task]] tables. An [[objective]] table says how a
task is learned; a task without one is learned with the defaults, so that a plain task file is a recipe too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerwise.data import Task, find_tasks, parse_tasks
from layerwise.errors import InputError, LayerwiseError
from layerwise.multitask.settings import MixingSettings, MultitaskDev, MultitaskModel, MultitaskRecipe, TaskObjective
from layerwise.registry import did_you_mean
from layerwise.settings import parse_settings
from layerwise.train.recipe_format import TEXTS, RecipeFormat, Tables, said_of
from layerwise.train.settings import OptimiserSettings

_TASK_TABLES = ("task", "tasks", "defaults")


class MultitaskFormat(RecipeFormat):
    """Recipes whose listed tables, the objectives, are known by their tasks."""

    def _place(self, tables: Tables, parts: Sequence[str], text: str) -> Tables:
        if parts[0] == "task" and len(parts) == 3:
            declared = {str(table.get("name")): table for table in tables.get("task", []) if isinstance(table, dict)}
            if parts[1] not in declared:
                guess = did_you_mean(parts[1], declared)
                raise InputError(f"--set {text!r}: no [[task]] {parts[1]!r} in the recipe.{guess}")
            return declared[parts[1]]
        return super()._place(tables, parts, text)

    def _listed_place(self, tables: Tables, name: str, text: str) -> Tables:  # noqa: ARG002 - the host's signature
        objectives: list[Tables] = tables.setdefault(self.listed, [])
        for table in objectives:
            if table.get("task") == name:
                return table
        objectives.append({"task": name})
        return objectives[-1]


RECIPES = MultitaskFormat(
    package="layerwise.multitask",
    tables={"model": MultitaskModel, "mixing": MixingSettings, "train": OptimiserSettings, "dev": MultitaskDev},
    listed="objective",
    grows=True,
)


def load_multitask_recipe(
    name_or_file: str | Path, sets: Sequence[str] = (), *, data: str | None = None
) -> MultitaskRecipe:
    """A recipe by its name or file, with `sets` such as "objective.sst.weight=0" put in.

    A task's file may be in the data folder, beside the recipe file, or at its path.

    >>> load_multitask_recipe("cs224n", ["train.batch_size=16"]).train.batch_size
    16
    """
    tables, where = RECIPES.read(name_or_file, sets)
    folder = Path(name_or_file).expanduser().parent if str(name_or_file).endswith(".toml") else None
    return parse_multitask_recipe(tables, where=where, folder=folder, data=data)


def parse_multitask_recipe(
    tables: Tables, *, where: str = "recipe", folder: Path | None = None, data: str | None = None
) -> MultitaskRecipe:
    """A recipe from the tables of a TOML file.

    Args:
        tables: The tables.
        where: What errors call the file.
        folder: The folder of the file, for task files and the files of tasks.
        data: A data folder whose files come first.
    """
    settings = RECIPES.settings({key: value for key, value in tables.items() if key not in _TASK_TABLES}, where)
    try:
        return MultitaskRecipe(
            **settings,
            tasks=tuple(_tasks(tables, where, folder, data)),
            objectives=tuple(_objective(table, where) for table in RECIPES.listed_tables(tables, where)),
        )
    except LayerwiseError as error:
        raise said_of(where, error) from error


def multitask_toml(recipe: MultitaskRecipe) -> str:
    """A TOML text from which `parse_multitask_recipe` reads the same recipe; every setting is in it, defaults too."""
    import tomli_w

    tables = {key: _without_none(asdict(getattr(recipe, key))) for key in RECIPES.tables}
    return tomli_w.dumps(
        {key: getattr(recipe, key) for key in TEXTS}
        | tables
        | {
            "task": [task.model_dump(exclude_none=True) for task in recipe.tasks],
            "objective": [objective.model_dump(exclude_none=True) for objective in recipe.objectives],
        }
    )


def _tasks(tables: Tables, where: str, folder: Path | None, data: str | None) -> list[Task]:
    names = tables.get("tasks", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f'{where}: tasks is {names!r}; expected a list of task files and names, ["tasks.toml", "sst5"]'
        )
    tasks = find_tasks([_beside(name, folder) for name in names], data=data)
    return tasks if "task" not in tables and names else [*tasks, *_inline(tables, where, folder, data)]


def _inline(tables: Tables, where: str, folder: Path | None, data: str | None) -> list[Task]:
    if "task" not in tables:
        raise InputError(f"{where}: no tasks; name task files, tasks = [...], or write [[task]] tables")
    return parse_tasks(tables, where, folder=folder, data=data)


def _beside(name: str, folder: Path | None) -> str:
    path = (folder or Path()) / Path(name).expanduser()
    return str(path) if name.endswith(".toml") and path.is_file() else name


def _objective(table: Mapping[str, Any], where: str) -> TaskObjective:
    if "task" not in table:
        raise InputError(f"{where}: an [[objective]] names no task; write task = ...")
    return parse_settings(TaskObjective, table, file=where)


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is left out."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return list(map(_without_none, value)) if isinstance(value, list | tuple) else value
