"""Recipes of several tasks: TOML files of exactly the settings in `layerwise.multitask.settings`.

[model], [mixing], [train], [dev] and a [[task]] for each task.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from layerwise.errors import InputError, LayerwiseError
from layerwise.multitask.label_name import label_name
from layerwise.multitask.settings import MixingSettings, MultitaskDev, MultitaskModel, MultitaskRecipe, TaskSettings
from layerwise.train.recipe_format import RecipeFormat, Tables, beside, said_of, settings_of
from layerwise.train.settings import OptimiserSettings

RECIPES = RecipeFormat(
    package="layerwise.multitask",
    tables={"model": MultitaskModel, "mixing": MixingSettings, "train": OptimiserSettings, "dev": MultitaskDev},
    listed="task",
)


def load_multitask_recipe(
    name_or_file: str | Path, sets: Sequence[str] = (), *, data: str | None = None
) -> MultitaskRecipe:
    """A recipe by its name or file, with `sets` such as "task.sst.weight=0" put in.

    Task files that a recipe file names may lie beside it, if they are not in the data folder that is given.

    >>> load_multitask_recipe("cs224n", ["train.batch_size=16"]).train.batch_size
    16
    """
    tables, where = RECIPES.read(name_or_file, sets)
    recipe = parse_multitask_recipe(tables, where=where)
    tasks = (replace(task, file=beside(name_or_file, task.file, data)) for task in recipe.tasks)
    return replace(recipe, tasks=tuple(tasks))


def parse_multitask_recipe(tables: Tables, *, where: str = "recipe") -> MultitaskRecipe:
    """From the tables of a TOML file."""
    given = RECIPES.settings(tables, where)
    listed = enumerate(RECIPES.listed_tables(tables, where), start=1)
    try:
        return MultitaskRecipe(**given, tasks=tuple(_task(table, where, number) for number, table in listed))
    except LayerwiseError as error:
        raise said_of(where, error) from error


def multitask_toml(recipe: MultitaskRecipe) -> str:
    """The other way round: a TOML text that `parse_multitask_recipe` makes the same recipe of."""
    return RECIPES.toml(recipe, [asdict(task) for task in recipe.tasks])


def _task(table: Tables, where: str, number: int) -> TaskSettings:
    for key in ("name", "kind", "file", "columns"):
        if key not in table:
            which = f"task {table['name']!r}" if "name" in table else f"[[task]] number {number}"
            raise InputError(f"{where}: {which} has no {key}; each has a name, kind, file and columns")
    splits = table.get("splits")
    if isinstance(splits, dict):  # one name stands for a list of it
        named = {role: [names] if isinstance(names, str) else names for role, names in splits.items()}
        table = table | {"splits": named}
    labels = table.get("labels")
    if isinstance(labels, list):  # numbers and true or false as the file may have them
        table = table | {"labels": [label_name(one) if isinstance(one, int | float) else one for one in labels]}
    task: TaskSettings = settings_of(TaskSettings, table, where, f"task {table['name']!r}")
    return task
