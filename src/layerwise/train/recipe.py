"""Recipes of a training: TOML files of exactly the settings in `layerwise.train.settings`, shipped or the user's."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from layerwise.errors import InputError, LayerwiseError
from layerwise.train.recipe_format import RecipeFormat, Tables, beside, said_of, settings_of
from layerwise.train.settings import DataSettings, DevSettings, ModelSettings, OptimiserSettings, Recipe
from layerwise.train.terms import TERMS

RECIPES = RecipeFormat(
    package="layerwise.train",
    tables={"data": DataSettings, "model": ModelSettings, "train": OptimiserSettings, "dev": DevSettings},
    listed="objective",
    grows=True,
)


def load_recipe(name_or_file: str | Path, sets: Sequence[str] = (), *, data: str | None = None) -> Recipe:
    """A recipe by its name or file, with `sets` such as "train.learning_rate=1e-4" put in.

    Text files that a recipe file names may lie beside it, if they are not in the data folder that is given.

    >>> load_recipe("simcse-unsup", ["train.batch_size=128"]).train.batch_size
    128
    """
    tables, where = RECIPES.read(name_or_file, sets)
    recipe = parse_recipe(tables, where=where)
    files = tuple(beside(name_or_file, file, data) for file in recipe.data.files)
    return replace(recipe, data=replace(recipe.data, files=files))


def parse_recipe(tables: Tables, *, where: str = "recipe") -> Recipe:
    """From the tables of a TOML file."""
    given = RECIPES.settings(tables, where)
    try:
        return Recipe(**given, objectives=_objectives(RECIPES.listed_tables(tables, where), where))
    except LayerwiseError as error:
        raise said_of(where, error) from error


def recipe_toml(recipe: Recipe) -> str:
    """The other way round: a TOML text that `parse_recipe` makes the same recipe of, overrides included."""
    return RECIPES.toml(recipe, [{"name": term.name, **asdict(term)} for term in recipe.objectives])


def _objectives(tables: Sequence[Tables], where: str) -> tuple[Any, ...]:
    found = []
    for table in tables:
        name = table.get("name")
        if not isinstance(name, str):
            raise InputError(f"{where}: an [[objective]] has no name; known: {', '.join(TERMS)}")
        rest = {key: value for key, value in table.items() if key != "name"}
        if rest.get("weight") == 0:  # so that --set can leave an objective out
            TERMS[name]
            continue
        found.append(settings_of(TERMS[name], rest, where, f"objective {name!r}"))
    return tuple(found)
