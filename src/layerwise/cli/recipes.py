"""`layerwise recipes [NAME]`: the recipes that are shipped, by objectives or by tasks."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.options import AsJson
from layerwise.cli.screen import print_json, print_line, print_table
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.train import MultitaskRecipe, Recipe
    from layerwise.train.recipes.format import RecipeFormat

    AnyRecipe = Recipe | MultitaskRecipe


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this one as TOML, to copy and change.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the recipes of `layerwise train` and `layerwise multitask`, or print one with all its settings."""
    from layerwise.train import MULTITASK_RECIPES, RECIPES

    if name is None:
        contrastive, tasks = map(RECIPES.load, RECIPES.names()), map(MULTITASK_RECIPES.load, MULTITASK_RECIPES.names())
        _show([*contrastive, *tasks], as_json)
        return
    formats: RecipeFormat[Any] = MULTITASK_RECIPES if name in MULTITASK_RECIPES.names() else RECIPES
    recipe = formats.load(name)
    if as_json:
        print_json(recipe.facts())
    else:
        notes = formats.notes(name) if name in formats.names() else ""
        typer.echo(notes + formats.toml(recipe), nl=False)


def check_command(recipe: str, command: str) -> None:
    """Raise for a recipe of the other command, naming that command."""
    from layerwise.settings import read_toml
    from layerwise.train import MULTITASK_RECIPES, RECIPES

    is_file = recipe.endswith(".toml") and Path(recipe).expanduser().is_file()
    tables = read_toml(recipe) if is_file else {}
    name, has_tasks = tables.get("extends", recipe), "task" in tables or "tasks" in tables
    if command == "train" and (name in MULTITASK_RECIPES.names() or has_tasks):
        other, kind = "multitask", "tasks"
    elif command == "multitask" and (name in RECIPES.names() or ("objective" in tables and not has_tasks)):
        other, kind = "train", "objectives"
    else:
        return
    raise InputError(f"{recipe}: a recipe of {kind}; run it by `layerwise {other} {shlex.quote(recipe)}`")


def _show(shipped: "list[AnyRecipe]", as_json: bool) -> None:
    if as_json:
        print_json([_summary(recipe) for recipe in shipped])
        return
    rows = [[recipe.name, _description(recipe)] for recipe in shipped]
    print_table(("recipe", "about; objectives or tasks, encoder; reached"), rows)
    print_line(
        "`layerwise recipes NAME` prints one; `layerwise train NAME` runs it (one with tasks: `layerwise multitask "
        "NAME`), `--set table.key=value` changes it."
    )


def _summary(recipe: "AnyRecipe") -> dict[str, Any]:
    kind, names = _learns(recipe)
    return {
        "name": recipe.name,
        "about": recipe.about,
        kind: names,
        "encoder": recipe.model.encoder,
        "reached": recipe.reached,
    }


def _learns(recipe: "AnyRecipe") -> tuple[str, list[str]]:
    """Return the names of a recipe's objectives or tasks."""
    from layerwise.train import Recipe

    if isinstance(recipe, Recipe):
        return "objectives", [term.name for term in recipe.objectives]
    return "tasks", [task.name for task in recipe.tasks]


def _description(recipe: "AnyRecipe") -> str:
    """Three lines: five columns would be too narrow to read on most screens."""
    kind, names = _learns(recipe)
    learns = " + ".join(names) if kind == "objectives" else f"tasks {', '.join(names)}"
    lines = (recipe.about, f"{learns}, {recipe.model.encoder or 'the encoder of --model'}", recipe.reached)
    return "\n".join(filter(None, lines))
