"""`layerwise train RECIPE`: train an encoder by a recipe, with one seed or several."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.options import AsJson, Device
from layerwise.cli.recipes import check_command
from layerwise.cli.screen import print_json, print_line, print_table, say_error
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.train import Recipe, SeedsResult
    from layerwise.train.loop.seeds import OnSeedStep

_LOG_SECONDS = 30  # between lines in a log file


def train(
    recipe: Annotated[str, typer.Argument(help="A name listed by `layerwise recipes`, or a file *.toml.")],
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
        str | None, typer.Option(help="The task whose graded pairs pick the best step: a name, a task file, or none.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new folder; else the recipe's name.")] = None,
    seeds: Annotated[str, typer.Option(help="One training each, such as 0,1,2.")] = "0",
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: train.learning_rate=1e-4 (repeat).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the training in OUT.")] = False,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Do not remove them at the end.")
    ] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Do not score the trained model.")] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train sentence embeddings. The best step on the dev pairs is scored and saved as a model folder."""
    from layerwise.train import load_recipe

    numbers, (folder, files) = seed_numbers(seeds), _split_data(data or [])
    check_command(recipe, "train")
    settings = _with_text(load_recipe(recipe, sets or (), data=folder), files, columns)
    settings = _with_evaluation(settings, dev, no_test)
    target = out or Path(settings.name)
    from layerwise.train import ContrastiveJob, train_seeds

    job = ContrastiveJob(settings, encoder=model, data=folder)
    try:
        with watch(len(numbers)) as on_step:
            result = train_seeds(
                job,
                target,
                seeds=numbers,
                resume=resume,
                device=device,
                keep_checkpoints=keep_checkpoints,
                on_step=on_step,
            )
    except KeyboardInterrupt as interrupt:
        say_error(f"interrupted; nothing is lost: resume in {target} with the same command and --resume")
        raise typer.Exit(130) from interrupt
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process prints
        return
    if as_json:
        models = [str(path) for path in result.models]
        print_json({"recipe": settings.name, **result.summary, "models": models, "results": list(result.results)})
    else:
        _show(settings.name, result)


def _split_data(paths: Sequence[str]) -> tuple[str | None, list[str]]:
    """The data folder, and the text to train on."""
    folders = [path for path in paths if Path(path).expanduser().is_dir()]
    if len(folders) > 1:
        raise InputError(f"--data names {len(folders)} folders, {' and '.join(folders)}; give one data folder")
    return (folders[0] if folders else None), [path for path in paths if path not in folders]


def _with_text(recipe: "Recipe", files: Sequence[str], columns: str | None) -> "Recipe":
    """The recipe with the text of the command line; a text file has one column, however many are stacked."""
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


def seed_numbers(text: str) -> tuple[int, ...]:
    """The numbers of "0,1,2"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: give whole numbers separated by commas, such as 0,1,2") from error


@contextmanager
def watch(seeds: int) -> "Iterator[OnSeedStep]":
    """A callback that shows a bar for each seed on standard error; in a log file, a line every half minute."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[metrics]}"),
        TimeRemainingColumn(),
    )
    bars: dict[int, TaskID] = {}
    printed = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def on_step(seed: int, step: int, steps: int, latest: dict[str, float]) -> None:
            nonlocal printed
            if not console.is_terminal:
                if time.monotonic() - printed > _LOG_SECONDS:
                    printed = time.monotonic()
                    console.print(f"seed {seed}: step {step:,} of {steps:,}, {_metrics(latest)}".rstrip(", "))
                return
            if seed not in bars:
                bars[seed] = progress.add_task(f"Seed {seed}" if seeds > 1 else "Training", total=steps, metrics="")
            progress.update(bars[seed], completed=step, total=steps, metrics=_metrics(latest))

        yield on_step


def _metrics(latest: dict[str, float]) -> str:
    """The loss and the dev score, where they are known."""
    ends = ("spearman", "overall")
    dev = next((value for name, value in latest.items() if name.startswith("eval_") and name.endswith(ends)), None)
    loss = [f"loss {latest['loss']:.4f}"] if "loss" in latest else []
    return ", ".join(loss + ([] if dev is None else [f"dev {100 * dev:.2f}"]))


def _show(name: str, result: "SeedsResult") -> None:
    from layerwise.train import format_spread

    summary = result.summary
    rows = [(f"{result.results[0]['dev']['task']} (picks)", format_spread(summary["dev"]))] if summary["dev"] else []
    rows += [(task, format_spread(score)) for task, score in summary["scores"].items()]
    rows += [(f"{suite} avg", format_spread(score)) for suite, score in summary["averages"].items()]
    seeds = len(summary["seeds"])
    over = f"mean ± sd of {seeds} seeds" if seeds > 1 else "one seed"
    if rows:
        print_table(("task", "score x 100"), rows, title=f"{name}: scores, {over}")
    seconds = format_spread(summary["seconds"])
    print_line(f"Trained in {seconds} s{' each' if seeds > 1 else ''} on {result.results[0]['device']}.")
    for path in result.models:
        typer.echo(f'wrote {path}; load it with LayerModel.load("{path}")')  # unbroken, to copy
