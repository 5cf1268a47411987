"""Common parts of `layerwise train` and `layerwise multitask`: options, progress bar, and printed result."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.screen import print_json, print_line, say_error
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.train import Job, SeedsResult
    from layerwise.train.loop.seeds import OnSeedStep

Encoder = Annotated[str | None, typer.Option(help="A folder, a hub name or 'default'; else the recipe's encoder.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="A new folder; else the recipe's name.")]
Seeds = Annotated[str, typer.Option(help="One training each, such as 0,1,2.")]
Resume = Annotated[bool, typer.Option("--resume", metavar="", help="Resume the training in OUT.")]
KeepCheckpoints = Annotated[bool, typer.Option("--keep-checkpoints", metavar="", help="Do not remove them at the end.")]
NoTest = Annotated[
    bool, typer.Option("--no-test", metavar="", help="Do not score the trained model on the recipe's test tasks.")
]
_LOG_SECONDS = 30  # between lines in a log file


def seed_numbers(text: str) -> tuple[int, ...]:
    """The numbers of "0,1,2"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: give whole numbers separated by commas, such as 0,1,2") from error


def run_job(
    job: "Job[Any, Any, Any]",
    out: Path | None,
    *,
    seeds: tuple[int, ...],
    as_json: bool,
    show: "Callable[[str, SeedsResult], None]",
    **options: Any,
) -> None:
    """Train a job with a progress bar and print the result; `options` are `train_seeds`'."""
    from layerwise.train import train_seeds

    name = job.recipe.name
    target = out or Path(name)
    try:
        with _progress(len(seeds)) as on_step:
            result = train_seeds(job, target, seeds=seeds, on_step=on_step, **options)
    except KeyboardInterrupt as interrupt:
        has_output = target.is_dir() and any(target.iterdir())
        say_error(
            f"interrupted; nothing is lost: resume in {target} with the same command and --resume"
            if has_output
            else "interrupted before the first step; nothing was written"
        )
        raise typer.Exit(130) from interrupt
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process prints
        return
    if as_json:
        models = [str(path) for path in result.models]
        print_json({"recipe": name, **result.summary, "models": models, "results": list(result.results)})
    else:
        show(name, result)


def test_rows(result: "SeedsResult") -> list[tuple[str, str]]:
    """The scores on test tasks and their averages, x 100, as rows of a table."""
    from layerwise.train import format_spread

    scores, averages = result.summary.get("scores") or {}, result.summary.get("averages") or {}
    rows = [(task, format_spread(score)) for task, score in scores.items()]
    return rows + [(f"{suite} avg", format_spread(score)) for suite, score in averages.items()]


def print_models(result: "SeedsResult", use: Callable[[Path], str]) -> None:
    """Print the time of a training, and how to use its models."""
    from layerwise.train import format_spread

    seconds, suffix = format_spread(result.summary["seconds"]), " each" if len(result.results) > 1 else ""
    print_line(f"Trained in {seconds} s{suffix} on {result.results[0]['device']}.")
    for path in result.models:
        typer.echo(f"wrote {path}; {use(path)}")  # unbroken, to copy


def over_seeds(result: "SeedsResult") -> str:
    """Describe what printed scores are averaged over."""
    return f"mean ± sd of {len(result.results)} seeds" if len(result.results) > 1 else "one seed"


@contextmanager
def _progress(seeds: int) -> "Iterator[OnSeedStep]":
    """Yield a callback that shows a bar per seed on standard error; in a log file, a line every half minute."""
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
    """Format the loss and the dev score, if known."""
    ends = ("spearman", "overall")
    dev = next((value for name, value in latest.items() if name.startswith("eval_") and name.endswith(ends)), None)
    loss = [f"loss {latest['loss']:.4f}"] if "loss" in latest else []
    return ", ".join(loss + ([] if dev is None else [f"dev {100 * dev:.2f}"]))
