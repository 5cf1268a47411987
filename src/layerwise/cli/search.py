"""`layerwise search MODEL PAIRS`: the best combination of the encoder's layers, with what it is worth."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.folders import check_free
from layerwise.cli.inputs import check_pairs, check_split
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import AsJson, DataFolder, Delimiter, Encoding, InputFormat, Model
from layerwise.cli.screen import counting, points, print_json, print_line, print_table, spent
from layerwise.cli.search_tasks import TaskOptions, search_tasks_of, show_joint
from layerwise.cli.search_views import ViewOptions, search_text_views, search_views_of, show_text_views, show_views
from layerwise.errors import InputError, MissingColumnError
from layerwise.muted import muted
from layerwise.registry import check_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from layerwise.data import TaskRows
    from layerwise.model import LayerModel
    from layerwise.search import (
        ClassSearchResult,
        JointResult,
        LayerSearch,
        SearchResult,
        Space,
        TextResult,
        ViewResult,
        ViewTextResult,
    )

_POINTS = 100  # correlations and rates are shown times 100
_UNLABELLED = ("dropout", "pairs", "neighbours", "repetition", "deletion", "all")


@loads_model
def search(
    model: Model,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS...",
            help="CSV, TSV, JSONL or Parquet; or a task, by a task file *.toml or name; several tasks get one set.",
        ),
    ],
    left: Annotated[str, typer.Option(help="The column of the first sentence (the query).")] = "sentence1",
    right: Annotated[str, typer.Option(help="The column of the second sentence (the passage).")] = "sentence2",
    score: Annotated[
        str | None, typer.Option(help="The column of the score or label: 'score', but none for retrieval.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="COLUMN=VALUE: take only such rows, e.g. split=test.")] = None,
    input_format: InputFormat = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    data: DataFolder = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="spearman, pearson; cosine_ap, cosine_accuracy (labels 0, 1); mrr@10, recall@5, ndcg@10; else "
            "the task's, or spearman."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="With several tasks: what each counts, such as 2,1; else all the same.")
    ] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="Which sets: all, 'up to 4', 'exactly 3', contiguous, 'with 0,1', 'without 12', or the layers to "
            "use such as 0-6,12; several joined by ';'."
        ),
    ] = "all",
    max_layer: Annotated[int | None, typer.Option(help="No layer above this one: cheaper embeddings.")] = None,
    method: Annotated[str, typer.Option(help="auto, exhaustive, beam, greedy, or weights (continuous).")] = "auto",
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Token poolings to search: mean, cls, max, last, weighted-mean, mean-but-first; several by commas; "
            "else the model's. With --prompts also all."
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Search prompts too: auto, names by commas, or a file of prompts (TOML, or one a line)."),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Views as they are (none), or of length 1 (unit) before they are averaged.")
    ] = None,
    less: Annotated[
        str | None,
        typer.Option(
            help="Take from views: none, mean, or the mean and so many components; several by commas, alone and mixed."
        ),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="The text that --less is fitted on; else the pairs that choose.")
    ] = None,
    fit_on: Annotated[
        str | None,
        typer.Option(
            help="Fit --less on --corpus (corpus), on the pairs that choose (pairs), or on what suits them (either)."
        ),
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="With --prompts: the most an embedding may cost, in passes of the whole model.")
    ] = None,
    max_passes: Annotated[
        int | None, typer.Option(help="With --prompts: the most prompts that a set may have.")
    ] = None,
    dev: Annotated[
        float | None, typer.Option(help="Pairs that choose, or their share below 1; else a task's dev rows, or half.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(help="Random splits into dev and test (1); scores are their means.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of splits and resamples.")] = 0,
    head: Annotated[
        bool, typer.Option("--head", metavar="", help="Apply the model's head (one linear layer) to every set.")
    ] = False,
    no_labels: Annotated[
        str | None,
        typer.Option(
            help="Choose without scores: dropout (two passes), pairs (the two columns), neighbours (lines), "
            "repetition, deletion (of words), or all (the last three must agree)."
        ),
    ] = None,
    compare_unlabelled: Annotated[
        bool,
        typer.Option(
            "--compare-unlabelled", metavar="", help="Show beside it what dropout alone, without scores, chooses."
        ),
    ] = False,
    limit: Annotated[int | None, typer.Option(help="At most so many pairs, drawn by --seed.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Only these rows of a task: train, dev or test; half of them choose.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the model that the verdict says to use here.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace what is at --save.")] = False,
    table: Annotated[
        Path | None, typer.Option(help="Write every set's dev score: *.csv, .tsv, .jsonl, .parquet.")
    ] = None,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Search every combination of layers: some pairs choose, others report. No training."""
    check_split(split, data)
    for source in sources:
        check_pairs(source, input_format)
    from layerwise.model import LayerModel  # takes seconds
    from layerwise.search import LayerSearch, Space, check_request, check_table_path, only_head, rows_to_search

    if table is not None:
        check_table_path(table)
    if save is not None:
        check_free(save, overwrite)
    if no_labels is not None:
        check_known(no_labels, _UNLABELLED, "--no-labels")
        _check_ungraded(metric=metric, score=score, dev=dev, splits=splits)
    views = ViewOptions.of(prompts, scale, less, corpus, fit_on, max_cost, max_passes, needed=no_labels == "all")
    space = Space.parse(layers, highest=max_layer)
    reading = {"format": input_format, "encoding": encoding, "delimiter": delimiter}
    columns = (left, right, score, where)
    read = [rows for path in sources for rows in _read(path, *columns, reading, metric, no_labels, split, data)]
    names = [name.strip() for name in pooling.split(",")] if pooling else []
    if views is None and "all" in names:
        raise InputError("--pooling all is for a search of views; add --prompts auto or --scale unit, or name poolings")
    pairs, rows = sources[0], read[0]
    if no_labels is None and (len(read) > 1 or weights or not _is_searched_alone(rows)):
        options = TaskOptions(names, metric, weights, split, limit, fixed=dev is None and splits is None)
        options.refuse({"--head": head, "--prompts and the like": views, "--compare-unlabelled": compare_unlabelled})
        asked_for = LayerSearch(space=space, method=method, dev=dev or 0.5, splits=splits or 1, seed=seed)
        results = search_tasks_of(read, options, asked_for, lambda: LayerModel.load(model, **loading))
        _report(results, save, overwrite, table, as_json)
        return
    if len(read) > 1:
        raise InputError("--no-labels takes one file or task; give one")
    if rows.task.kind == "classification" and no_labels is None:
        _check_classes(rows, metric, method, dev, head)
        chosen_space = None if (layers, max_layer) == ("all", None) else space
        loaded = LayerModel.load(model, **loading)
        of_model, *_ = loaded.mix.poolings
        classes = _search_classes(loaded, rows, names or [of_model], chosen_space, splits, seed)
        _report(classes, save, overwrite, table, as_json)
        return
    if views is not None:
        views.check(
            rows,
            no_labels,
            method=method,
            layers=layers,
            max_layer=max_layer,
            head=head,
            table=table,
            compare_unlabelled=compare_unlabelled,
        )
    fixed = dev is None and splits is None and limit is None
    if no_labels is None:
        rows, parts = rows_to_search(rows, split=split, fixed=fixed)
    else:
        rows, parts = rows if split is None else rows.of_role(split), None
    rows = rows if limit is None else rows.limited(limit, seed=seed)
    chosen = LayerSearch(
        metric=None if no_labels else metric or rows.task.metric,
        space=space,
        method=method,
        dev=0.5 if dev is None else dev,
        splits=1 if splits is None else splits,
        parts=parts,
        seed=seed,
    )
    check_request(pairs, rows, [name for name in names if name != "all"], chosen, head=head)
    loaded = LayerModel.load(model, **loading)
    space.bits(loaded.encoder.depth + 1)  # refuses layers that the model has not, before any text is read
    if views is not None:
        viewed = (loaded, rows, names, chosen, views)
        found_views = search_text_views(*viewed, no_labels) if no_labels else search_views_of(*viewed)
        _report(found_views, save, overwrite, table, as_json)
        return
    chosen.device = loaded.encoder.device if loaded.encoder.device.type == "cuda" else "cpu"
    chosen.head = only_head(loaded) if head else None
    result = _search_pairs(loaded, rows, names or list(loaded.mix.poolings), chosen, no_labels, compare_unlabelled)
    _report(result, save, overwrite, table, as_json)


def _search_pairs(
    model: "LayerModel",
    rows: "TaskRows",
    poolings: list[str],
    search: "LayerSearch",
    no_labels: str | None,
    compare_unlabelled: bool,
) -> "SearchResult | TextResult":
    from layerwise.search import alike_texts, search_pairs, search_text

    watch, bar = partial(counting, unit="sets"), sys.stderr.isatty()
    with muted("layerwise.search"):  # its warnings are shown as notes to the result
        if no_labels is None:
            return search_pairs(
                model, rows, poolings, search, watch, unlabelled=compare_unlabelled, show_progress_bar=bar
            )
        first, second = alike_texts(no_labels, rows.left, rows.right, seed=search.seed)
        return search_text(model, first, second, poolings, search, watch, criterion=no_labels, show_progress_bar=bar)


def _check_ungraded(**options: object) -> None:
    """Raise for options that a search without labels does not use."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name} is for graded pairs; leave it out with --no-labels")


def _check_classes(rows: "TaskRows", metric: str | None, method: str, dev: float | None, head: bool) -> None:
    """Raise, before a model is loaded, for options that a search for classes does not use."""
    name = rows.task.name
    if metric not in (None, "accuracy") or rows.task.metric != "accuracy":
        raise InputError(f"task {name!r} has classes, for which layers are searched by accuracy, not by another metric")
    for option, is_set in (("--method", method != "auto"), ("--dev", dev is not None), ("--head", head)):
        if is_set:
            raise InputError(f"task {name!r} has classes; {option} is for pairs, leave it out")


def _search_classes(
    model: "LayerModel", rows: "TaskRows", poolings: list[str], space: "Space | None", splits: int | None, seed: int
) -> "ClassSearchResult":
    from layerwise.search import search_classes

    watch, bar = partial(counting, unit="sets"), sys.stderr.isatty()
    return search_classes(model, rows, poolings, watch, space=space, seed=seed, outer=splits, show_progress_bar=bar)


def _read(
    path: str,
    left: str,
    right: str,
    score: str | None,
    where: str | None,
    reading: "Mapping[str, str | None]",
    metric: str | None,
    no_labels: str | None,
    split: str | None,
    data: str | None,
) -> "list[TaskRows]":
    """The rows of a plain file of pairs, or of each task of a task file."""
    from layerwise.data import file_task, find_tasks, guess_format, load_task, read_pairs, read_task

    if where is not None and "=" not in where:
        raise InputError(f"--where {where!r} is not COLUMN=VALUE")
    input_format = reading["format"]
    is_file = Path(path).suffix != ".toml" and (Path(path).is_file() or guess_format(path) or input_format)
    if not is_file:
        if (left, right, score, where, *reading.values()) != ("sentence1", "sentence2", *[None] * 5):
            raise InputError(f"{path}: is a task, which declares its columns; --left, --right and so on are for files")
        return [load_task(task, data) for task in find_tasks([path], data=data)]
    if split is not None:
        raise InputError(f"{path}: --split is for tasks; take rows of a file by a column: --where split={split}")
    if not no_labels and (input_format or guess_format(path)) == "text":
        raise InputError(f"{path}: a text file has no pairs; give CSV, TSV, JSONL or Parquet, or --no-labels all")
    column, _, value = (where or "").partition("=")
    only = (column, value) if where else None
    options: dict[str, Any] = dict(reading)
    try:
        if no_labels is None:
            named = {"left": left, "right": right} if (left, right) != ("sentence1", "sentence2") else {}
            task = file_task(path, name="pairs", **named, score=score, where=only, metric=metric, **options)
            rows = replace(read_task(task, path, empty=None, **options), origin=Path(path).name)
        else:
            rows = read_pairs(path, (left, right if no_labels == "pairs" else left), None, where=only, **options)
    except MissingColumnError as error:
        remedy = "" if no_labels is None else "; name the columns by --left, --right and --score"
        raise InputError(f"{error}{remedy}") from error
    return [rows]


def _is_searched_alone(rows: "TaskRows") -> bool:
    """Whether a task is searched by Gram matrices or by its classes; other kinds by their own metrics."""
    from layerwise.search import is_searched_by_grams

    return rows.task.kind == "classification" or is_searched_by_grams(rows)


def _report(
    result: "SearchResult | TextResult | ClassSearchResult | ViewResult | ViewTextResult | JointResult",
    save: Path | None,
    overwrite: bool,
    table: Path | None,
    as_json: bool,
) -> None:
    """Write the requested files, then print the result."""
    from layerwise.search import ClassSearchResult, JointResult, ViewResult, ViewTextResult

    if table is not None and not isinstance(result, ViewResult | ViewTextResult):
        (result.table if isinstance(result, ClassSearchResult) else result.search.table_).write(table)
    if save is not None:
        model = result.model
        model.save(save, overwrite=overwrite)
    if as_json:
        print_json(result.as_dict() | {"saved": str(save) if save else None})
        return
    if isinstance(result, ViewResult):
        show_views(result)
    elif isinstance(result, ViewTextResult):
        show_text_views(result)
    elif isinstance(result, JointResult):
        show_joint(result)
    else:
        _show_classes(result) if isinstance(result, ClassSearchResult) else _show(result)
    if save is not None:
        print_line(f"Saved the model of {model.mix} in {save}.")


def _show_classes(result: "ClassSearchResult") -> None:
    scores, report = result.as_dict(), result.report
    many = f", means of {len(report.splits)} splits" if len(report.splits) > 1 else ""
    rows = [
        (name, scores[key]["mix"], points(scores[key]["dev"]), points(scores[key]["test"]))
        for name, key in (("best found", "best"), ("last layer", "last"))
    ]
    title = f"{len(result.table):,} sets of layers, accuracy x 100 of a logistic regression{many}"
    print_table(("", "layers @ pooling", "dev", "unseen"), rows, title=title)
    spread = f" ± {_POINTS * report.gain_sd:.1f}" if len(report.splits) > 1 else ""
    print_line(f"Gain over the last layer on unseen rows: {_POINTS * report.gain:+.1f}{spread}.")
    print_line(str(result.verdict))
    if result.prompt:
        print_line(f"Put before the texts: {result.prompt!r}.")
    print_line(spent(result.seconds))


def _show(result: "SearchResult | TextResult") -> None:
    from layerwise.search import SearchResult

    if isinstance(result, SearchResult):
        _show_scores(result)
        prompts = result.prompts
    else:
        _show_choice(result.search)
        prompts = (result.prompt, result.prompt)
    if any(prompts):
        print_line(f"Put before the texts: {' and '.join(repr(prompt) for prompt in dict.fromkeys(prompts))}.")
    for warning in result.warnings:
        print_line(f"Note: {warning}.")
    print_line(spent(result.seconds))


def _show_choice(search: "LayerSearch") -> None:
    best, last = search.best_, search.last_
    print_line(
        f"Chosen without labels among {len(search.table_):,} sets: {best.mix} (separation {best.dev:.2f}, last layer "
        f"{last.dev:.2f}). It has no score; that needs 100 or more graded pairs."
    )


def _show_scores(result: "SearchResult") -> None:
    search, report = result.search, result.search.report_
    best, last = search.best_, search.last_
    many = f", means of {len(report.splits)} splits" if len(report.splits) > 1 else ""
    title = (
        f"{len(search.table_):,} sets of layers, {search.metric_name_} x 100; {report.dev_pairs:,} {search.unit_} "
        f"choose, {report.test_pairs:,} others report{many}"
    )
    rows = [
        ("best found", str(best.mix), points(best.dev), points(best.test)),
        ("last layer", str(last.mix), points(last.dev), points(last.test)),
    ]
    verdict = result.verdict
    highest = verdict.baseline
    if not verdict.is_last:
        rows.insert(1, ("highest layer", str(highest.mix), points(highest.dev), points(highest.test)))
    if result.unlabelled is not None:
        rows.append(("chosen without labels", str(result.unlabelled.mix), "", points(result.unlabelled.test)))
    print_table(("", "layers @ pooling", "dev", "unseen"), rows, title=title)
    print_line(f"{verdict}\n")
    front = [(str(c.layers[-1]), str(c.mix), points(c.dev), points(c.test)) for c in search.front_]
    print_table(("blocks", "best set that needs no more", "dev", "unseen"), front, title="Quality against cost")
    if len(front) > 1:
        found = f"As good, within a point, with fewer blocks: {search.cheaper_}."
        print_line(found if search.cheaper_ else "No set with fewer blocks is surely within a point.")
    shares = ", ".join(f"{layer}: {share:.0%}" for layer, share in search.stability_.items() if share >= 0.1)
    print_line(f"Chosen by halves of the {search.unit_}: layer {shares} (agreement {search.stability_.agreement:.0%}).")
