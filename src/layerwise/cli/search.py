"""`layerwise search MODEL PAIRS`: the best embedding that the model contains, with what it is worth."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.cli.collected import collects
from layerwise.cli.folders import check_free
from layerwise.cli.inputs import check_pairs, check_split
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.screen import counting, print_json, print_line
from layerwise.cli.search_options import SearchOptions
from layerwise.cli.selection import show_selection
from layerwise.errors import InputError, MissingColumnError
from layerwise.progress import showing

if TYPE_CHECKING:
    from layerwise.data import TaskRows
    from layerwise.search import Selection


@loads_model
@collects(SearchOptions)
def search(options: SearchOptions, *, loading: Loading) -> None:
    """Search every combination of layers: some pairs choose, others report. No training."""
    check_split(options.split, options.data)
    for source in options.sources:
        check_pairs(source, options.input_format)
    from layerwise.model import LayerModel  # takes seconds
    from layerwise.search import check_table_path, without_scores

    if options.table is not None:
        check_table_path(options.table)
    if options.save is not None:
        check_free(options.save, options.overwrite)
    asked = options.search()
    rows = [rows for source in options.sources for rows in read_rows(source, options)]
    if options.no_labels is None:
        options.check_tasks(rows)
    with search_progress():
        selection = asked.fit(lambda: LayerModel.load(options.model, **loading), rows, corpus=options.corpus).selection_
        if options.compare_unlabelled:
            selection.unlabelled = without_scores(selection, rows[0])
        _report(selection, options)


@contextmanager
def search_progress() -> Iterator[None]:
    """Show the progress of a search on a terminal."""
    with showing(partial(counting, unit="sets") if sys.stderr.isatty() else None):
        yield


def read_rows(source: str, options: SearchOptions) -> "list[TaskRows]":
    """The rows of a plain file of pairs, or of each task of a task file."""
    from layerwise.data import file_task, find_tasks, guess_format, load_task, read_pairs, read_task

    named = (options.left, options.right, options.score, options.where)
    is_file = Path(source).suffix != ".toml" and bool(
        Path(source).is_file() or guess_format(source) or options.input_format
    )
    if not is_file:
        if (*named, *options.reading.values()) != ("sentence1", "sentence2", *[None] * 5):
            raise InputError(
                f"{source}: is a task, which declares its columns; --left, --right and so on are for files"
            )
        return [load_task(task, options.data) for task in find_tasks([source], data=options.data)]
    if options.split is not None:
        raise InputError(
            f"{source}: --split is for tasks; take rows of a file by a column: --where split={options.split}"
        )
    no_labels = options.no_labels
    if not no_labels and (options.input_format or guess_format(source)) == "text":
        raise InputError(f"{source}: a text file has no pairs; give CSV, TSV, JSONL or Parquet, or --no-labels all")
    column, _, value = (options.where or "").partition("=")
    where = (column, value) if options.where else None
    sides = (options.left, options.right)
    try:
        if no_labels is not None:
            columns = sides if no_labels == "pairs" else (options.left, options.left)
            return [read_pairs(source, columns, None, where=where, **options.reading)]
        columns_by = {} if sides == ("sentence1", "sentence2") else {"left": options.left, "right": options.right}
        task = file_task(
            source,
            name="pairs",
            score=options.score,
            where=where,
            metric=options.metric,
            **columns_by,
            **options.reading,
        )
        return [replace(read_task(task, source, empty=None, **options.reading), origin=Path(source).name)]
    except MissingColumnError as error:
        remedy = "; name the columns by --left, --right and --score" if no_labels else ""
        raise InputError(f"{error}{remedy}") from error


def _report(selection: "Selection", options: SearchOptions) -> None:
    """Write the requested files, then print the result."""
    from layerwise.search import ScoreTable

    if options.table is not None and isinstance(selection.table, ScoreTable):
        selection.table.write(options.table)
    model = None
    if options.save is not None:
        model = selection.model()
        model.save(options.save, overwrite=options.overwrite)
    if options.as_json:
        saved = None if options.save is None else str(options.save)
        print_json(selection.facts.model_copy(update={"saved": saved}).model_dump(mode="json"))
        return
    show_selection(selection)
    if model is not None:
        print_line(f"Saved the model of {model.mix} in {options.save}.")
