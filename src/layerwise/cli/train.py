"""`layerwise train RECIPE`: train an encoder by a recipe, with one seed or several."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.options import AsJson, Device
from layerwise.cli.recipes import check_command
from layerwise.cli.screen import print_json, print_line, print_table, say_error
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.train.seeds import SeedsResult, SeedTold
    from layerwise.train.settings import Recipe

_QUIET = 30  # seconds between lines in a log file


def train(
    recipe: Annotated[str, typer.Argument(help="A name of `layerwise recipes`, or a file *.toml.")],
    model: Annotated[
        str | None, typer.Option(help="A folder, a hub name or 'default'; else the recipe's encoder.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A folder is the data folder; a file, or hub:owner/name, is the text (repeat)."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the text, such as text, or anchor,positive,negative.")
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Whose graded pairs pick the best step: a task, a task file, or none.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new folder; else the recipe's name.")] = None,
    seeds: Annotated[str, typer.Option(help="One training each, such as 0,1,2.")] = "0",
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: train.learning_rate=1e-4 (repeat).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was begun in OUT.")] = False,
    keep_checkpoints: Annotated[bool, typer.Option("--keep-checkpoints", help="Leave them beside the model.")] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Don't score the finished model.")] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train sentence embeddings. The best step by the dev pairs is kept, scored and saved as a model folder."""
    from layerwise.train.recipe import load_recipe

    several, (folder, files) = seed_numbers(seeds), _split_data(data or [])
    check_command(recipe, "train")
    loaded = _chosen_by(_adapted(load_recipe(recipe, sets or (), data=folder), files, columns, no_test), dev)
    target = out or Path(loaded.name)
    from layerwise.train.seeds import train_seeds  # takes seconds; mistakes above are told at once

    try:
        with watch(len(several)) as told:
            result = train_seeds(
                loaded,
                target,
                seeds=several,
                encoder=model,
                data=folder,
                resume=resume,
                device=device,
                keep_checkpoints=keep_checkpoints,
                told=told,
            )
    except KeyboardInterrupt as stopped:
        say_error(f"interrupted; what was written is kept: the same command with --resume goes on in {target}")
        raise typer.Exit(130) from stopped
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks
        return
    if as_json:
        models = [str(path) for path in result.models]
        print_json({"recipe": loaded.name, **result.summary, "models": models, "results": list(result.results)})
    else:
        _show(loaded, result)


def _chosen_by(recipe: "Recipe", task: str | None) -> "Recipe":
    """The recipe with another dev task; "none" keeps the last step's weights, and then nothing stops early."""
    if task is None:
        return recipe
    if task == "none":
        return replace(recipe, dev=replace(recipe.dev, task="", patience=0, measures=()))
    return replace(recipe, dev=replace(recipe.dev, task=task))


def _split_data(given: Sequence[str]) -> tuple[str | None, list[str]]:
    """The data folder, and what is text to train on."""
    folders = [path for path in given if Path(path).expanduser().is_dir()]
    if len(folders) > 1:
        raise InputError(f"--data names {len(folders)} folders, {' and '.join(folders)}; give one data folder")
    return (folders[0] if folders else None), [path for path in given if path not in folders]


def _adapted(recipe: "Recipe", files: Sequence[str], columns: str | None, no_test: bool) -> "Recipe":
    """The recipe with the text of the command line; a text file has one column, however many are stacked."""
    from layerwise.data.rows import guess_format

    given = recipe.data
    if columns is not None:
        given = replace(given, columns=tuple(name.strip() for name in columns.split(",") if name.strip()))
    if files:
        given = replace(given, files=tuple(files))
        plain = all(not file.startswith("hub:") and guess_format(file) == "text" for file in files)
        if plain and given.stack:
            given = replace(given, columns=("text",), stack=False)
        if plain and len(given.columns) > 1:
            raise InputError(
                f"{files[0]}: a text file has one column, but this recipe takes {', '.join(given.columns)}; "
                f"give CSV, TSV, JSONL or Parquet, and its names with --columns"
            )
    dev = replace(recipe.dev, test=()) if no_test else recipe.dev
    return replace(recipe, data=given, dev=dev)


def seed_numbers(text: str) -> tuple[int, ...]:
    """From "0,1,2"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: give whole numbers with commas between, such as 0,1,2") from error


@contextmanager
def watch(seeds: int) -> "Iterator[SeedTold]":
    """A bar for each seed on standard error, with loss and dev score; in a log file a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    bars: dict[int, TaskID] = {}
    said = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def told(seed: int, step: int, steps: int, latest: dict[str, float]) -> None:
            nonlocal said
            if not console.is_terminal:
                if time.monotonic() - said > _QUIET:
                    said = time.monotonic()
                    console.print(f"seed {seed}: step {step:,} of {steps:,}, {_figures(latest)}".rstrip(", "))
                return
            if seed not in bars:
                bars[seed] = progress.add_task(f"Seed {seed}" if seeds > 1 else "Training", total=steps, figures="")
            progress.update(bars[seed], completed=step, total=steps, figures=_figures(latest))

        yield told


def _figures(latest: dict[str, float]) -> str:
    """The loss and the dev score, where they are known."""
    ends = ("spearman", "overall")
    dev = next((value for name, value in latest.items() if name.startswith("eval_") and name.endswith(ends)), None)
    said = [f"loss {latest['loss']:.4f}"] if "loss" in latest else []
    return ", ".join(said + ([] if dev is None else [f"dev {100 * dev:.2f}"]))


def _show(recipe: "Recipe", result: "SeedsResult") -> None:
    from layerwise.train.summary import shown

    found = result.summary
    rows = [(f"{result.results[0]['dev']['task']} (chooses)", shown(found["dev"]))] if found["dev"] else []
    rows += [(name, shown(figures)) for name, figures in found["scores"].items()]
    rows += [(f"{suite} avg", shown(figures)) for suite, figures in found["averages"].items()]
    seeds = len(found["seeds"])
    how = f"mean ± sd of {seeds} seeds" if seeds > 1 else "one seed"
    if rows:
        print_table(("task", "score x 100"), rows, title=f"{recipe.name}: headline figures, {how}")
    print_line(
        f"Trained in {shown(found['seconds'])} s{' each' if seeds > 1 else ''} on {result.results[0]['device']}."
    )
    for path in result.models:
        typer.echo(f'wrote {path}; load it with LayerModel.load("{path}")')  # unbroken, to copy
