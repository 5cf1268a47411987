"""`layerwise recipes [NAME]`: the trainings that the package knows, by objectives or by tasks."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.options import AsJson
from layerwise.cli.screen import print_json, print_line, print_table
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.multitask.settings import MultitaskRecipe
    from layerwise.train.settings import Recipe

    AnyRecipe = Recipe | MultitaskRecipe


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this one's TOML, to copy and change.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the recipes of `layerwise train` and `layerwise multitask`, or print one."""
    from layerwise.multitask import recipe as multitask
    from layerwise.train import recipe as train

    several = multitask.RECIPES.names()
    if name is None:
        trainings = [train.load_recipe(one) for one in train.RECIPES.names()]
        _show([*trainings, *map(multitask.load_multitask_recipe, several)], as_json)
    elif as_json:
        print_json((multitask.load_multitask_recipe(name) if name in several else train.load_recipe(name)).facts())
    else:
        kind = multitask if name in several else train
        typer.echo(kind.RECIPES.text(name)[0], nl=False)


def check_command(recipe: str, command: str) -> None:
    """Refuse what is a recipe of the other command, and name that."""
    from layerwise.multitask import recipe as multitask
    from layerwise.train import recipe as train

    is_file = recipe.endswith(".toml") and Path(recipe).expanduser().is_file()
    tables = train.RECIPES.read(recipe)[0] if is_file else {}
    has_tasks = recipe in multitask.RECIPES.names() or "task" in tables or "tasks" in tables
    is_single = recipe in train.RECIPES.names() or ("objective" in tables and not has_tasks)
    if command == "train" and has_tasks:
        raise InputError(f"{recipe}: a recipe of tasks; run it by `layerwise multitask {shlex.quote(recipe)}`")
    if command == "multitask" and is_single:
        raise InputError(f"{recipe}: a recipe without tasks; run it by `layerwise train {shlex.quote(recipe)}`")


def _show(found: "list[AnyRecipe]", as_json: bool) -> None:
    if as_json:
        print_json([_facts(recipe) for recipe in found])
        return
    rows = [[recipe.name, _described(recipe)] for recipe in found]
    print_table(("recipe", "about; objectives or tasks, encoder; reached"), rows)
    print_line(
        "`layerwise recipes NAME` prints one; `layerwise train NAME` runs it (one with tasks: `layerwise multitask "
        "NAME`), `--set table.key=value` changes it."
    )


def _facts(recipe: "AnyRecipe") -> dict[str, Any]:
    kind, names = _made_of(recipe)
    return {
        "name": recipe.name,
        "about": recipe.about,
        kind: names,
        "encoder": recipe.model.encoder,
        "reached": recipe.reached,
    }


def _made_of(recipe: "AnyRecipe") -> tuple[str, list[str]]:
    """Its objectives, or its tasks."""
    from layerwise.train.settings import Recipe

    if isinstance(recipe, Recipe):
        return "objectives", [term.name for term in recipe.objectives]
    return "tasks", [task.name for task in recipe.tasks]


def _described(recipe: "AnyRecipe") -> str:
    """Three lines: five columns would be too narrow to read on most screens."""
    kind, names = _made_of(recipe)
    learnt = " + ".join(names) if kind == "objectives" else f"tasks {', '.join(names)}"
    lines = (recipe.about, f"{learnt}, {recipe.model.encoder or 'the encoder of --model'}", recipe.reached)
    return "\n".join(filter(None, lines))
