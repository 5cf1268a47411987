"""`layerwise multitask RECIPE`: train one encoder on several labelled tasks, with one seed or several."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.options import AsJson, DataFolder, Device
from layerwise.cli.recipes import check_command
from layerwise.cli.screen import print_json, print_line, print_table, say_error
from layerwise.cli.train import seed_numbers, watch

if TYPE_CHECKING:
    from layerwise.train import SeedsResult


def multitask(
    recipe: Annotated[str, typer.Argument(help="A recipe of the package (cs224n), a recipe file or a task file *.toml.")],
    model: Annotated[
        str | None, typer.Option(help="A folder, a hub name or 'default'; else the recipe's encoder.")
    ] = None,
    data: DataFolder = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new folder; else the recipe's name.")] = None,
    seeds: Annotated[str, typer.Option(help="One training each, such as 0,1,2.")] = "0",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: train.learning_rate=1e-4, objective.sst.head=mlp (repeat)."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the training in OUT.")] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train one encoder on several tasks. The best step by the overall dev score is saved as a model folder."""
    from layerwise.multitask import load_multitask_recipe

    several = seed_numbers(seeds)
    check_command(recipe, "multitask")
    loaded = load_multitask_recipe(recipe, sets or (), data=data)
    target = out or Path(loaded.name)
    from layerwise.multitask import train_multitask_seeds  # takes seconds, so mistakes are refused before

    try:
        with watch(len(several)) as told:
            result = train_multitask_seeds(
                loaded, target, seeds=several, encoder=model, data=data, resume=resume, device=device, told=told
            )
    except KeyboardInterrupt as stopped:
        say_error(f"interrupted; what was written is kept: the same command with --resume goes on in {target}")
        raise typer.Exit(130) from stopped
    if as_json:
        models = [str(path) for path in result.models]
        print_json({"recipe": loaded.name, **result.summary, "models": models, "results": list(result.results)})
    else:
        _show(loaded.name, result)


def _show(name: str, result: "SeedsResult") -> None:
    from layerwise.train import format_spread as shown

    found, seeds = result.summary, len(result.results)
    how = f"mean ± sd of {seeds} seeds" if seeds > 1 else "one seed"
    roles = [role for role in ("dev", "test") if role in found]
    rows = [
        (score, *(shown(found[role][score], 4) if score in found[role] else "" for role in roles))
        for score in found["dev"]
    ]
    print_table(("task/metric", *roles), rows, title=f"{name}: {how}")
    print_line(
        f"Trained in {shown(found['seconds'])} s{' each' if seeds > 1 else ''} on {result.results[0]['device']}."
    )
    for path in result.models:
        command = f"layerwise predict {shlex.quote(str(path))} --task NAME INPUT -o OUT"
        typer.echo(f"wrote {path}; use it: {command}")  # unbroken, to copy
