"""`layerwise embed MODEL INPUT -o OUT`: embed any number of rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.loading import check_model
from layerwise.cli.options import (
    AsJson,
    Backend,
    Delimiter,
    Device,
    Dtype,
    Encoding,
    InputFormat,
    MaxLength,
    Mix,
    Precision,
    Revision,
    TrustRemoteCode,
)
from layerwise.cli.screen import counting, decimals, print_json, print_line, say_error
from layerwise.errors import InputError, MissingColumnError
from layerwise.stores import place_of, without_secrets

if TYPE_CHECKING:
    from layerwise.data import RowSource


def embed(
    model: Annotated[
        str | None,
        typer.Argument(help="A model folder, a hub name, or 'default' for the embedded all-MiniLM-L6-v2."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="Text, CSV, TSV, JSONL or Parquet: a path, a URL, or - for stdin."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="A folder for shards, or one file *.parquet or *.npy: a path, or a URL such as s3://bucket/name.",
        ),
    ] = None,
    verified: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="VECTORS",
            help="Check a folder or joined file instead: counts, checksums, every vector, some rows embedded again. "
            "MODEL and INPUT are needed only where they have moved.",
        ),
    ] = None,
    text_columns: Annotated[
        list[str] | None, typer.Option("--column", help="The column that holds the text; 'text' without.")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to carry along (repeat; Parquet only).")] = None,
    mix: Mix = None,
    input_format: InputFormat = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    output_format: Annotated[str | None, typer.Option("--format", help="Of the shards: parquet or npy.")] = None,
    prompt: Annotated[str | None, typer.Option(help="A text to put before each sentence.")] = None,
    prompt_name: Annotated[str | None, typer.Option(help="The name of one of the model's prompts.")] = None,
    empty: Annotated[str, typer.Option(help="Rows without text: error, skip or keep.")] = "error",
    normalize: Annotated[
        bool, typer.Option("--normalize", metavar="", help="Make every embedding's length 1.")
    ] = False,
    truncate_dim: Annotated[int | None, typer.Option(help="Keep only the first so many dimensions.")] = None,
    number_type: Annotated[str, typer.Option(help="Numbers in the output: float32 or float16.")] = "float32",
    shard_rows: Annotated[int, typer.Option(help="Rows a shard; a stopped run loses at most a few of them.")] = 8192,
    engine: Annotated[
        str, typer.Option(help="Where to embed: local (this machine), or ray (the machines of a Ray cluster).")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Of the Ray cluster: auto, or HOST:PORT. By default, one is started on this machine."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Processes that share the work: 1 by default; with Ray, one for each GPU or, without, each machine."
        ),
    ] = None,
    bad_rows: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Set rows that cannot be embedded aside in this *.jsonl, *.csv or *.tsv file (Parquet only).",
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Of this machine: the report then has the cost of a million tokens.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Start again although OUT exists.")
    ] = False,
    device: Device = None,
    dtype: Dtype = "float32",
    max_length: MaxLength = None,
    tokens_per_batch: Annotated[int | None, typer.Option(help="Token budget of a batch.")] = None,
    backend: Backend = None,
    precision: Precision = "float",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Embed any number of rows, streaming. Stopped in any way, the same command resumes it."""
    from layerwise.data import RowSource

    column = _text_column(text_columns)
    if verified is not None:
        _verify(verified, model, source, column, input_format, encoding, delimiter, device, as_json)
        return
    if model is None or source is None or out is None:
        missing = "argument 'MODEL'" if model is None else "argument 'INPUT'" if source is None else "option '--out'"
        raise typer.BadParameter(f"Missing {missing}")
    check_model(model)
    columns = (column, *(keep or ()))
    rows = RowSource.of(source, columns, format=input_format, encoding=encoding, delimiter=delimiter)
    _check_columns(rows)
    from layerwise.embed import EmbedJob, ModelChoice, run_embed, split_out  # takes seconds

    shards, joined, shard_format = split_out(place_of(out), output_format)
    devices = tuple(device.split(",")) if device else ()
    job = EmbedJob(
        source=rows,
        format=shard_format,
        shard_rows=shard_rows,
        empty=empty,
        normalize=normalize,
        truncate_dim=truncate_dim,
        prompt=prompt,
        prompt_name=prompt_name,
        number_type=number_type,
    )
    options = {
        "device": devices[0] if devices else None,
        "dtype": dtype,
        "max_length": max_length,
        "tokens_per_batch": tokens_per_batch,
        "backend": backend,
        "precision": precision,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
    }
    try:
        with counting("Embedding") as progress, _columns_named():
            result = run_embed(
                job,
                ModelChoice(model, mix, options),
                shards,
                joined=joined,
                engine=engine,
                address=address,
                processes=processes,
                devices=devices,
                overwrite=overwrite,
                bad_rows=bad_rows,
                progress=progress,
            )
    except KeyboardInterrupt as stopped:
        has_shards = any(shards.glob("part-*"))
        say_error(
            "interrupted; the shards written before are kept: run the same command again to resume"
            if has_shards
            else "interrupted; nothing was written yet"
        )
        raise typer.Exit(130) from stopped
    cost = None if price_per_hour is None else result.cost_per_million_tokens(price_per_hour)
    if as_json:
        facts = asdict(result) | {"tokens_per_second": result.tokens_per_second}
        print_json(facts | ({} if price_per_hour is None else {"cost_per_million_tokens": cost}))
        return
    before = f" ({result.resumed:,} were there already)" if result.resumed else ""
    print_line(f"{result.rows:,} rows of {result.width} numbers in {result.seconds:.1f} s{before}: {result.out}")
    if result.tokens:
        price = "" if cost is None else f", {decimals(cost, 4)} a million tokens at {price_per_hour:g} an hour"
        print_line(f"{result.tokens:,} tokens, {result.tokens_per_second:,.0f} tokens/s with loading the model{price}")
    if bad_rows is not None:
        print_line(f"{result.set_aside:,} rows were set aside: {without_secrets(bad_rows)}")


def _text_column(names: list[str] | None) -> str:
    """Return the single text column."""
    if names is not None and len(names) > 1:
        raise InputError(
            f"--column is given {len(names)} times, and one column holds the text; join {' and '.join(names)} into one "
            f"before"
        )
    return names[0] if names else "text"


def _check_columns(rows: "RowSource") -> None:
    """Raise for missing columns before a model is loaded; piped input is read only by the run."""
    from layerwise.data import STDIN

    if rows.path != STDIN:
        with _columns_named():
            next(iter(replace(rows, lenient=True)), None)


@contextmanager
def _columns_named() -> Iterator[None]:
    """Add the options that name columns to the error about a missing column."""
    try:
        yield
    except MissingColumnError as error:
        raise InputError(f"{error}; name the column of the text by --column, others by --keep") from error


def _verify(
    vectors: str,
    model: str | None,
    source: str | None,
    column: str,
    input_format: str | None,
    encoding: str | None,
    delimiter: str | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Check a folder or a file and list its faults."""
    from layerwise.data import RowSource

    check_model(model)
    rows = None
    if source is not None:
        rows = RowSource.of(source, (column,), format=input_format, encoding=encoding, delimiter=delimiter)
    from layerwise.embed import verify_vectors  # takes seconds

    with counting("Reading") as progress:
        result = verify_vectors(vectors, source=rows, model=model, device=device, progress=progress)
    if as_json:
        print_json(asdict(result))
    else:
        again = f"; {result.sampled} embedded again, lowest cosine {result.lowest_cosine:.4f}" if result.sampled else ""
        files = f"{result.shards} shards" if place_of(vectors).is_dir() else "one file"
        print_line(f"{result.rows:,} rows in {files}{again}: {len(result.faults)} faults in {without_secrets(vectors)}")
        for note in result.notes:
            print_line(note)
    for fault in result.faults:
        say_error(fault)
    if result.faults:
        raise typer.Exit(2)
