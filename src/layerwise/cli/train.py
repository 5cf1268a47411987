"""`layerwise train RECIPE`: train an encoder by a recipe, with one seed or several."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.inputs import check_file
from layerwise.cli.options import AsJson, Device
from layerwise.cli.recipes import check_command
from layerwise.cli.screen import print_line, print_table
from layerwise.cli.training import (
    Encoder,
    KeepCheckpoints,
    NoTest,
    Out,
    Resume,
    Seeds,
    over_seeds,
    print_models,
    run_job,
    seed_numbers,
    test_rows,
)
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.train import Recipe, SeedsResult


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A name listed by `layerwise recipes`, or a file *.toml.", show_default=False)
    ] = None,
    model: Encoder = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A folder is the data folder; a file, or hub:owner/name, is the text (repeat)."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the text, such as text, or anchor,positive,negative.")
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="The task whose graded pairs pick the best step: a name, a task file, or none.")
    ] = None,
    out: Out = None,
    seeds: Seeds = "0",
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: train.learning_rate=1e-4 (repeat).")
    ] = None,
    resume: Resume = False,
    keep_checkpoints: KeepCheckpoints = False,
    no_test: NoTest = False,
    suggest: Annotated[
        str | None,
        typer.Option(metavar="CORPUS", help="Train nothing: write the recipe for this file, to recipe.toml or --out."),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train sentence embeddings. The best step on the dev pairs is scored and saved as a model folder."""
    if suggest is not None:
        _suggest(suggest, model or "default", dev, Path(out or "recipe.toml"))
        return
    if recipe is None:
        raise InputError("no recipe; `layerwise recipes` lists them, and --suggest CORPUS writes one for a file")
    if recipe.endswith(".toml"):
        check_file(recipe, "`layerwise recipes` lists the shipped recipes")
    from layerwise.train import load_recipe

    numbers, (folder, files) = seed_numbers(seeds), _split_data(data or [])
    check_command(recipe, "train")
    settings = _with_text(load_recipe(recipe, sets or (), data=folder), files, columns)
    settings = _with_evaluation(settings, dev, no_test)
    from layerwise.train import ContrastiveJob  # takes seconds: the mistakes above are reported first

    run_job(
        ContrastiveJob(settings, encoder=model, data=folder),
        out,
        seeds=numbers,
        resume=resume,
        device=device,
        keep_checkpoints=keep_checkpoints,
        as_json=as_json,
        show=_show,
    )


def _suggest(corpus: str, model: str, dev: str | None, out: Path) -> None:
    """Write the recipe for a file, and say why."""
    check_file(corpus, "give a file of text")
    if out.exists():
        raise InputError(f"{out}: exists; give another file with --out")
    from layerwise.data import guess_format
    from layerwise.files import check_writable, write_text
    from layerwise.train import load_recipe, pairs_task
    from layerwise.train import suggest as suggest_recipe

    check_writable(out)
    task = "" if dev in (None, "none") else str(dev)
    if guess_format(task):  # a file of pairs: a recipe names a task
        check_file(task, "give a task, a task file or a file of graded pairs")
        declared, task = pairs_task(task), str(out.with_name(f"{out.stem}-dev.toml"))
        write_text(task, declared)
    suggestion = suggest_recipe(corpus, model=model, dev=task)
    write_text(out, suggestion.toml)
    load_recipe(out)  # what is written can be read
    print_line(f"{suggestion.extends}, because of")
    for reason in suggestion.reasons:
        print_line(f"- {reason}")
    print_line(f"wrote {out}: `layerwise train {out}` trains it")


def _split_data(paths: Sequence[str]) -> tuple[str | None, list[str]]:
    """The data folder, and the text to train on."""
    folders = [path for path in paths if Path(path).expanduser().is_dir()]
    if len(folders) > 1:
        raise InputError(f"--data names {len(folders)} folders, {' and '.join(folders)}; give one data folder")
    return (folders[0] if folders else None), [path for path in paths if path not in folders]


def _with_text(recipe: "Recipe", files: Sequence[str], columns: str | None) -> "Recipe":
    """Return the recipe with the text given on the command line; a text file has one column, even if stacked."""
    from layerwise.data import guess_format

    data = recipe.data
    if columns is not None:
        data = data.replaced(columns=tuple(name.strip() for name in columns.split(",") if name.strip()))
    if files:
        data = data.replaced(files=tuple(files))
        plain = all(not file.startswith("hub:") and guess_format(file) == "text" for file in files)
        if plain and data.stack:
            data = data.replaced(columns=("text",), stack=False)
        if plain and len(data.columns) > 1:
            raise InputError(
                f"{files[0]}: a text file has one column, but this recipe takes {', '.join(data.columns)}; "
                f"give CSV, TSV, JSONL or Parquet, and its column names with --columns"
            )
    return recipe.replaced(data=data)


def _with_evaluation(recipe: "Recipe", task: str | None, no_test: bool) -> "Recipe":
    """The recipe with another dev task ("none" keeps the last step's weights, without early stopping) or no test."""
    dev = recipe.dev.replaced(test=()) if no_test else recipe.dev
    if task == "none":
        dev = dev.replaced(task="", patience=0, measures=())
    elif task is not None:
        dev = dev.replaced(task=task)
    return recipe.replaced(dev=dev)


def _show(name: str, result: "SeedsResult") -> None:
    from layerwise.train import format_spread

    dev = result.summary["dev"]
    rows = [(f"{result.results[0]['dev']['task']} (picks)", format_spread(dev))] if dev else []
    rows += test_rows(result)
    if rows:
        print_table(("task", "score x 100"), rows, title=f"{name}: scores, {over_seeds(result)}")
    print_models(result, lambda path: f'load it with LayerModel.load("{path}")')
