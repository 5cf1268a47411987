"""`layerwise recipes [NAME]`: the trainings that the package knows."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.options import AsJson
from layerwise.cli.screen import print_json, print_line, print_table

if TYPE_CHECKING:
    from layerwise.train.settings import Recipe


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this one's TOML, to copy and change.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the recipes of `layerwise train`, or print one."""
    from layerwise.train.recipe import load_recipe, recipe_names, recipe_text

    if name is None:
        _show([load_recipe(known) for known in recipe_names()], as_json)
    elif as_json:
        print_json(load_recipe(name).facts())
    else:
        typer.echo(recipe_text(name)[0], nl=False)


def _show(found: "list[Recipe]", as_json: bool) -> None:
    if as_json:
        print_json([_facts(recipe) for recipe in found])
        return
    rows = [[recipe.name, _described(recipe)] for recipe in found]
    print_table(("recipe", "about; objectives, encoder; reached"), rows)
    print_line(
        "`layerwise recipes NAME` prints one; `layerwise train NAME` runs it, `--set table.key=value` changes it."
    )


def _facts(recipe: "Recipe") -> dict[str, Any]:
    return {
        "name": recipe.name,
        "about": recipe.about,
        "objectives": [term.name for term in recipe.objectives],
        "encoder": recipe.model.encoder,
        "reached": recipe.reached,
    }


def _described(recipe: "Recipe") -> str:
    """Three lines: five columns would be too narrow to read on most screens."""
    objectives = " + ".join(term.name for term in recipe.objectives)
    lines = (recipe.about, f"{objectives}, {recipe.model.encoder or 'the encoder of --model'}", recipe.reached)
    return "\n".join(filter(None, lines))
