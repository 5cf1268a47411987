"""`layerwise evaluate MODEL`: scores with their protocol."""

import logging
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import AsJson, DataFolder, Model
from layerwise.cli.screen import print_json, print_line, print_table, say_error
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.files import check_writable

log = logging.getLogger(__name__)

EACH = "each"  # as a mix: every single layer
_TEXTS, _FIGURES = (".json", ".md", ".csv"), (".svg", ".png")

if TYPE_CHECKING:
    from layerwise.data import Task
    from layerwise.evaluate import Evaluation, Subject, TaskResult, Variant


@loads_model
def evaluate(
    model: Model,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAIRS]...",
            help="CSV, TSV, JSONL or Parquet, whose columns say the kind of task; or tasks, as --tasks.",
        ),
    ] = None,
    left: Annotated[str | None, typer.Option(help="The column of a file's first sentence.")] = None,
    right: Annotated[str | None, typer.Option(help="The column of a file's second sentence.")] = None,
    score: Annotated[str | None, typer.Option(help="The column of a file's score.")] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="sts, transfer, probing, multilingual, clustering, reranking, pairs, bitext, fewshot, retrieval, "
            "relatedness; mteb-like is the last seven, all is all of them (commas; sts-raw too)."
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", "--task", help="Names, or task files *.toml (repeat, or commas).")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            "--layers",
            "--views",
            help="A mix instead of the model's (repeat), such as '1,6' or 'views(5 @ mean; 9 @ last in eol; unit)'; "
            "'each' is every layer by every pooling; 'search' with --protocol lc.",
        ),
    ] = None,
    every_layer: Annotated[bool, typer.Option("--every-layer", metavar="", help="The same as --layers each.")] = False,
    poolings: Annotated[
        str | None,
        typer.Option("--pooling", help="For --layers each and search: mean, cls, 'last in eol' and so on, by commas."),
    ] = None,
    protocol: Annotated[str, typer.Option(help="senteval, senteval-mlp or lc.")] = "senteval",
    aggregate: Annotated[str, typer.Option(help="Headline of STS over subsets: all, mean or wmean.")] = "all",
    split: Annotated[str, typer.Option(help="Which rows of STS are scored: test, dev or train.")] = "test",
    seeds: Annotated[str | None, typer.Option(help="Of what is random, such as 1,2,3.")] = None,
    data: DataFolder = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out", "-o", help="Write *.json (for compare), *.md, *.csv or, of --layers each, *.svg or *.png (repeat)."
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", metavar="", help="Score again what was stored before.")] = False,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Evaluate a model on STS, transfer, clustering, retrieval or your own tasks; the same command resumes."""
    from layerwise.data import file_task, find_tasks, is_pair_file

    started = time.perf_counter()
    mixes = [mix for mix in layers or () if mix.strip() != EACH]
    every_layer = every_layer or len(mixes) < len(layers or ())
    names = [name.strip() for text in tasks or () for name in text.split(",") if name.strip()]
    if tasks and not names:
        raise InputError("--tasks names no task; leave it out for the suite sts, or see `layerwise data list`")
    files = [name for name in sources or () if is_pair_file(name)]
    if not files and any((left, right, score)):
        raise InputError("--left, --right and --score name the columns of a file; give the file, or leave them out")
    names = [name for name in sources or () if name not in files] + names
    mine = [file_task(path, left=left, right=right, score=score) for path in files]
    named = {task.name for task in [*mine, *find_tasks(names)]}
    _check_out(out or [], every_layer=every_layer)
    from layerwise.evaluate import Matrix, Protocol, ResultStore
    from layerwise.evaluate import evaluate as run

    how = Protocol(protocol, aggregate, split, _seeds(seeds))
    if poolings and not every_layer and mixes != ["search"]:
        raise InputError(f"--pooling is for --layers each and the search; write --layers 'last @ {poolings}' instead")
    token_poolings = _poolings(poolings or ("mean,cls,max" if every_layer else "mean"))
    store = ResultStore(fresh=fresh)
    choice = {"layers": mixes, "every_layer": every_layer, "poolings": token_poolings, **loading}
    lazy = _Wanted(model, choice, store.memory)
    lazy.check()
    suites = suite.split(",") if suite else () if named else ("sts",)
    chosen = _available([*mine, *find_tasks(names, suites)], named, data)
    subject = lazy.subject
    total = len(chosen) * len(subject.variants)
    watch = _Watch(total)
    try:
        evaluation = run(
            subject, chosen, protocol=how, data=data, store=store, progress=watch, when_read=watch.rows_read
        )
    except KeyboardInterrupt as stopped:
        say_error(
            "interrupted; results so far are stored: run the same command again to resume"
            if watch.done
            else "interrupted; there was no result yet"
        )
        raise typer.Exit(130) from stopped
    _write(evaluation, out or [])
    if as_json:
        matrix = {"matrix": Matrix.of(evaluation.runs).as_dict()} if len(evaluation.runs) > 1 else {}
        print_json(evaluation.as_dict() | matrix)
    else:
        _show(evaluation, out or [], store.hits, total)
        print_line(f"{watch.times}; all of it {time.perf_counter() - started:.1f} s")


def _seeds(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: give whole numbers with commas between, such as 1,2,3") from error


def _poolings(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _check_out(paths: list[Path], *, every_layer: bool) -> None:
    for path in paths:
        if path.suffix not in (*_TEXTS, *_FIGURES):
            raise InputError(f"{path}: its ending {path.suffix!r} is not one of {', '.join((*_TEXTS, *_FIGURES))}")
        if path.suffix in _FIGURES and not every_layer:
            raise InputError(f"{path}: a heat map shows layers: add --layers each, or write .json, .md or .csv")
        if path.suffix in _FIGURES:
            require("report", "a figure", "matplotlib")
        check_writable(path)


def _available(tasks: "list[Task]", named: set[str], data: str | None) -> "list[Task]":
    """Tasks whose rows are here or can be fetched, before a model is loaded; of a suite the others are left out."""
    from layerwise.data import data_folder, obtain

    data_folder(data)
    available = []
    for task in tasks:
        try:
            obtain(task, data)
        except InputError as error:
            if task.name in named or len(tasks) == 1:
                raise
            log.warning("%s is left out: its rows are not on this machine: %s", task.name, error)
            continue
        available.append(task)
    if not available:
        raise InputError("none of the tasks is here or can be fetched; see `layerwise data list`, or name --data")
    return available


class _Wanted:
    """The evaluated model: a remembered one is loaded only if it must embed.

    Torch, whose import takes seconds, is imported where a mix must be checked or a model loaded.
    """

    def __init__(self, model: str, choice: dict[str, Any], memory: Path | None) -> None:
        self._model, self._choice, self._memory = model, choice, memory

    def check(self) -> None:
        """Raise for invalid layers before rows are fetched; those of a remembered model are already checked."""
        from layerwise.encoder import is_default, local_model

        on_disk = is_default(self._model) or local_model(self._model)
        is_own_mix = not self._choice["layers"] and not self._choice["every_layer"]
        if is_own_mix or (on_disk and self._remembered):
            return
        from layerwise.evaluate import check_layers

        check_layers(self._choice["layers"], self._choice["poolings"], every_layer=self._choice["every_layer"])

    @cached_property
    def subject(self) -> "Subject":
        """Return the remembered subject, or load it."""
        return self._remembered or self._load(self._memory)

    @cached_property
    def _remembered(self) -> "Subject | None":
        if self._memory is None:
            return None
        from layerwise.evaluate import Memory

        return Memory.of(self._memory, self._model, **self._choice).recall(self._load)

    def _load(self, memory: Path | None = None) -> "Subject":
        from layerwise.evaluate import load_subject

        return load_subject(self._model, show_progress_bar=sys.stderr.isatty(), memory=memory, **self._choice)


class _Watch:
    """Prints a line per result on standard error if it is a terminal, and accumulates the time of each task."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self._seconds: dict[str, float] = {}
        self._reading = 0.0
        self._last = time.perf_counter()

    def rows_read(self) -> None:
        """The rows of all tasks are read: time from here on is that of the tasks."""
        self._reading, self._last = time.perf_counter() - self._last, time.perf_counter()

    @property
    def times(self) -> str:
        """Describe the time of reading rows and of tasks that took a second or more, slowest first."""
        slow = sorted(((seconds, name) for name, seconds in self._seconds.items() if seconds >= 1), reverse=True)
        named = [f"{name} {seconds:.0f} s" for seconds, name in slow]
        others = len(self._seconds) - len(slow)
        rest = [f"{others} under 1 s" if slow else "each under 1 s"] * bool(others)
        return f"time by task: {', '.join(named + rest)}; reading rows {self._reading:.1f} s"

    def __call__(self, task: "Task", variant: "Variant", result: "TaskResult") -> None:
        self.done += 1
        now = time.perf_counter()
        self._seconds[task.name] = self._seconds.get(task.name, 0.0) + now - self._last
        self._last = now
        if sys.stderr.isatty():
            from layerwise.evaluate import shown

            score = shown(result.score, result.sd.get(result.metric))
            sys.stderr.write(f"[{self.done}/{self.total}] {task.name} by {variant.label}: {result.metric} {score}\n")


def _write(evaluation: "Evaluation", paths: list[Path]) -> None:
    from layerwise.evaluate import Matrix, to_csv, to_markdown
    from layerwise.files import write_text

    for path in paths:
        if path.suffix == ".json":
            evaluation.save(path)
        elif path.suffix in _FIGURES:
            from layerwise.plots import save_figure

            save_figure(Matrix.of(evaluation.runs).draw(), path)
        else:
            write_text(path, to_markdown(evaluation) if path.suffix == ".md" else to_csv(evaluation))


def _show(evaluation: "Evaluation", written: list[Path], stored: int, total: int) -> None:
    from layerwise.evaluate import describe, describe_heads, leakage, tables

    for columns, rows in tables(evaluation):
        if len(rows) == 1:  # a row for each task is easier to read than a wide table
            by_task = list(zip(columns[1:], rows[0][1:], strict=True))
            print_table(("task", rows[0][0]), by_task, title=describe(evaluation))
        else:
            print_table(columns, rows, title=describe(evaluation))
    for note in (describe_heads(evaluation), leakage(list(evaluation)), *(f"wrote {path}" for path in written)):
        if note:
            print_line(note)
    if stored:
        what = f"{stored} of {total} results were" if stored < total else f"all {total} results were"
        print_line(f"{what if total > 1 else 'the result was'} stored before (--fresh scores again)")
