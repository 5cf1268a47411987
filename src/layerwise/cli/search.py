"""`layerwise search MODEL PAIRS`: the best combination of the encoder's layers, with what it is worth."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.folders import check_free
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import AsJson, Model
from layerwise.cli.screen import counting, print_json, print_line, print_table
from layerwise.errors import InputError, MissingColumnError
from layerwise.muted import muted

if TYPE_CHECKING:
    from layerwise.data.pairs import PairRows
    from layerwise.model.layer_model import LayerModel
    from layerwise.search.layer_search import LayerSearch
    from layerwise.search.run import SearchResult, TextResult

_POINTS = 100  # correlations and rates are shown times 100


@loads_model
def search(
    model: Model,
    pairs: Annotated[str, typer.Argument(metavar="PAIRS", help="CSV, TSV, JSONL or Parquet with named columns.")],
    left: Annotated[str, typer.Option(help="The column of the first sentence (the query).")] = "sentence1",
    right: Annotated[str, typer.Option(help="The column of the second sentence (the passage).")] = "sentence2",
    score: Annotated[
        str | None, typer.Option(help="The column of the score or label: 'score', but none for retrieval.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="COLUMN=VALUE: take only such rows, e.g. split=test.")] = None,
    input_format: Annotated[str | None, typer.Option(help="csv, tsv, jsonl, parquet or text; else by ending.")] = None,
    metric: Annotated[
        str,
        typer.Option(help="spearman, pearson; average-precision, accuracy (labels 0, 1); mrr@10, recall@5, ndcg@10."),
    ] = "spearman",
    layers: Annotated[
        str,
        typer.Option(
            help="Which sets: all, 'up to 4', 'exactly 3', contiguous, 'with 0,1', 'without 12', or the layers to "
            "use such as 0-6,12; several joined by ';'."
        ),
    ] = "all",
    max_layer: Annotated[int | None, typer.Option(help="No layer above this one: cheaper embeddings.")] = None,
    method: Annotated[str, typer.Option(help="auto, exhaustive, beam, greedy, or weights (continuous).")] = "auto",
    pooling: Annotated[str, typer.Option(help="Token poolings to search: mean, cls, max; several by commas.")] = "mean",
    dev: Annotated[float | None, typer.Option(help="Pairs that choose, or their share below 1; else half.")] = None,
    splits: Annotated[int, typer.Option(help="Random splits into dev and test; scores are their means.")] = 1,
    seed: Annotated[int, typer.Option(help="Of splits and resamples.")] = 0,
    head: Annotated[
        bool, typer.Option("--head", help="Keep the model's own head (one linear layer) behind every set.")
    ] = False,
    no_labels: Annotated[
        str | None,
        typer.Option(
            help="Choose without scores: dropout (two passes), pairs (the two columns) or neighbours (lines)."
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the model with the chosen layers here.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --save.")] = False,
    table: Annotated[
        Path | None, typer.Option(help="Write every set's dev score: *.csv, .tsv, .jsonl, .parquet.")
    ] = None,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Search every combination of layers: some pairs choose, others report. No training."""
    from layerwise.model.layer_model import LayerModel
    from layerwise.search.layer_search import LayerSearch
    from layerwise.search.request import check_request, only_head
    from layerwise.search.spaces import Space
    from layerwise.search.table import check_table_path

    if table is not None:
        check_table_path(table)
    if save is not None:
        check_free(save, overwrite)
    space = Space.parse(layers, highest=max_layer)
    rows = _read(pairs, left, right, score, where, input_format, metric, no_labels)
    names = [name.strip() for name in pooling.split(",")]
    chosen = LayerSearch(
        metric=None if no_labels else metric,
        space=space,
        method=method,
        dev=None if no_labels else 0.5 if dev is None else dev,
        splits=splits,
        seed=seed,
    )
    check_request(pairs, rows, names, chosen, head=head)
    loaded = LayerModel.load(model, **loading)
    chosen.device = loaded.encoder.device if loaded.encoder.device.type == "cuda" else "cpu"
    chosen.head = only_head(loaded) if head else None
    result, how = _run(loaded, rows, names, chosen, no_labels)
    if table is not None:
        chosen.table_.write(table)
    if save is not None:
        _save(loaded, chosen, how, save, overwrite)
    if as_json:
        print_json(result.as_dict() | {"saved": str(save) if save else None})
        return
    _show(result)
    if save is not None:
        print_line(f"Saved the model of layers {chosen.best_.mix} in {save}.")


def how_chosen(result: "SearchResult") -> str:
    """For the model card."""
    search, report = result.search, result.search.report_
    return (
        f"the best of {len(search.table_):,} sets by {search.metric_name_} on {report.dev_pairs:,} pairs "
        f"({len(report.splits)} random split(s)); on {report.test_pairs:,} unseen pairs "
        f"{_points(search.best_.test)}, last layer {_points(search.last_.test)} (x 100)"
    )


def _run(
    model: "LayerModel", rows: "PairRows", poolings: list[str], search: "LayerSearch", no_labels: str | None
) -> "tuple[SearchResult | TextResult, str]":
    """The result, and how the layers were chosen, for the model card."""
    from layerwise.search.run import search_pairs, search_text

    watch, bar = partial(counting, unit="sets"), sys.stderr.isatty()
    with muted("layerwise.search"):  # its warnings are shown as notes to the result
        if no_labels is None:
            result = search_pairs(model, rows, poolings, search, watch, show_progress_bar=bar)
            return result, how_chosen(result)
        second = None if no_labels == "dropout" else rows.right
        found = search_text(model, rows.left, second, poolings, search, watch, show_progress_bar=bar)
    sets = f"{len(search.table_):,} sets"
    return found, f"without labels, by {no_labels}: the best of {sets} in telling alike from unlike sentences"


def _read(
    path: str,
    left: str,
    right: str,
    score: str | None,
    where: str | None,
    input_format: str | None,
    metric: str,
    no_labels: str | None,
) -> "PairRows":
    from layerwise.data.pairs import PairRows, read_pairs
    from layerwise.data.rows import guess_format
    from layerwise.search import RetrievalMetric

    if where is not None and "=" not in where:
        raise InputError(f"--where {where!r} is not COLUMN=VALUE")
    if no_labels not in (None, "dropout", "pairs", "neighbours"):
        raise InputError(f"--no-labels {no_labels!r}: known are dropout, pairs and neighbours")
    kept = tuple(where.split("=", 1)) if where else None
    both = (left, left) if no_labels in ("dropout", "neighbours") else (left, right)
    graded = None if no_labels else score or (None if RetrievalMetric.parse(metric) else "score")
    if not no_labels and (input_format or guess_format(path)) == "text":
        raise InputError(f"{path}: a text file has no pairs; give CSV, TSV, JSONL or Parquet, or --no-labels dropout")
    try:
        rows = read_pairs(path, both, graded, where=kept, format=input_format)  # type: ignore[arg-type]
    except MissingColumnError as error:
        raise InputError(f"{error}; name the columns by --left, --right and --score") from error
    return PairRows(rows.left[:-1], rows.left[1:], []) if no_labels == "neighbours" else rows


def _save(model: "LayerModel", search: "LayerSearch", how: str, folder: Path, overwrite: bool) -> None:
    from layerwise.search.run import chosen_model

    chosen = chosen_model(model, search.best_.mix, how, keep_heads=search.head is not None)
    chosen.save(folder, overwrite=overwrite)


def _show(result: "SearchResult | TextResult") -> None:
    from layerwise.search.run import SearchResult

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
    print_line(f"Views {result.seconds['views']:.1f} s, search {result.seconds['search']:.2f} s.")


def _show_choice(search: "LayerSearch") -> None:
    best, last = search.best_, search.last_
    print_line(
        f"Chosen without labels among {len(search.table_):,} sets: {best.mix} (separation {best.dev:.2f}, last layer "
        f"{last.dev:.2f}). No score can be given; with 100 or more graded pairs one can."
    )


def _show_scores(result: "SearchResult") -> None:
    from layerwise.search.run import front_with_tests

    search, report = result.search, result.search.report_
    best, last, gain = search.best_, search.last_, report.gain
    many = f", means of {len(report.splits)} splits" if len(report.splits) > 1 else ""
    title = (
        f"{len(search.table_):,} sets of layers, {search.metric_name_} x 100; {report.dev_pairs:,} pairs choose, "
        f"{report.test_pairs:,} others report{many}"
    )
    rows = [
        ("best set", str(best.mix), _points(best.dev), _points(best.test)),
        ("last layer", str(last.mix), _points(last.dev), _points(last.test)),
    ]
    if result.unlabelled is not None:
        rows.append(("chosen without labels", str(result.unlabelled.mix), "", _points(result.unlabelled.test)))
    print_table(("", "layers @ pooling", "dev", "unseen"), rows, title=title)
    print_line(
        f"Gain over the last layer on unseen pairs: {_POINTS * gain.mean:+.1f} "
        f"[{_POINTS * gain.low:+.1f}, {_POINTS * gain.high:+.1f}] (95 %), p = {gain.p_value:.2g}.\n"
    )
    front = [(str(c.layers[-1]), str(c.mix), _points(c.dev), _points(c.test)) for c in front_with_tests(search)]
    print_table(("blocks", "best set that needs no more", "dev", "unseen"), front, title="Quality against cost")
    shares = ", ".join(f"{layer}: {share:.0%}" for layer, share in search.stability_.items() if share >= 0.1)
    print_line(f"Chosen by halves of the pairs: layer {shares} (agreement {search.stability_.agreement:.0%}).")


def _points(score: float | None) -> str:
    return "" if score is None else f"{_POINTS * score:.1f}"
