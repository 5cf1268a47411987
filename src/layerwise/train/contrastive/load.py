"""Loads the training text from files, standard input and the hub, in columns or stacked into one."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, overload

from layerwise.data import STDIN, data_folder, guess_format
from layerwise.errors import InputError, MissingColumnError
from layerwise.train.contrastive.corpus import AnyCorpus, Corpus, StreamedCorpus, kept_columns
from layerwise.train.contrastive.settings import DataSettings
from layerwise.train.contrastive.text_rows import HUB, ExactDedup, Paths, RowFilter, TextRows, Texts


@overload
def read_corpus(
    path: Paths,
    columns: str | Sequence[str],
    *,
    limit: int | None = ...,
    format: str | None = ...,
    where: tuple[str, str] | None = ...,
    keep_duplicates: bool = ...,
    with_clauses: bool = ...,
    stream: Literal[False] = ...,
    rows: int | None = ...,
) -> Corpus: ...


@overload
def read_corpus(
    path: Paths,
    columns: str | Sequence[str],
    *,
    limit: int | None = ...,
    format: str | None = ...,
    where: tuple[str, str] | None = ...,
    keep_duplicates: bool = ...,
    with_clauses: bool = ...,
    stream: bool,
    rows: int | None = ...,
) -> AnyCorpus: ...


def read_corpus(
    path: Paths,
    columns: str | Sequence[str],
    *,
    limit: int | None = None,
    format: str | None = None,
    where: tuple[str, str] | None = None,
    keep_duplicates: bool = False,
    with_clauses: bool = False,
    stream: bool = False,
    rows: int | None = None,
) -> AnyCorpus:
    """Read texts from files or a hub dataset; rows with an empty text and duplicates are dropped.

    Args:
        path: Text, CSV, TSV, JSONL or Parquet files, "-" for standard input, "hub:owner/name:split" for hub data;
            several are read in order.
        columns: The names of one to three columns of texts; a text file has one column, whatever its name.
        limit: Only the first rows, counted after dropping.
        format: The files' format; by default from their suffixes.
        where: (column, value): only rows with this value.
        keep_duplicates: Keep repeated rows.
        with_clauses: After each row of one column, the clauses of its text as rows, see `clauses`.
        stream: Hold only a few batches in memory and read the files in each epoch, see `StreamedCorpus`.
        rows: With `stream`: the number of rows after dropping, if known.
    """
    texts = TextRows.of(path, columns, format=format, where=where, with_clauses=with_clauses)
    if stream:
        return StreamedCorpus(texts, limit=limit, keep_duplicates=keep_duplicates, rows=rows)
    if rows is not None:
        raise InputError("rows is for a streamed corpus; to read only some rows, give limit")
    row_filter = RowFilter(None if keep_duplicates else ExactDedup(), limit)
    return _read(row_filter, texts, texts.name, texts.label, limit)


def stacked_corpus(
    paths: Sequence[str],
    columns: Sequence[str],
    *,
    limit: int | None = None,
    keep_duplicates: bool = False,
    with_clauses: bool = False,
) -> Corpus:
    """Stack the columns of files into one: file by file, and column by column in each."""
    parts = [TextRows.of([path], (column,), with_clauses=with_clauses) for path in paths for column in columns]
    names, labels = (
        " + ".join(dict.fromkeys(texts)) for texts in zip(*((p.name, p.label) for p in parts), strict=True)
    )
    row_filter = RowFilter(None if keep_duplicates else ExactDedup(), limit)
    return _read(row_filter, chain.from_iterable(parts), names, labels, limit)


def load_corpus(settings: DataSettings, data: str | None = None) -> AnyCorpus:
    """Load the text of a recipe's [data]; `data` is the data folder."""
    if not settings.files:
        raise InputError("no text to train on; give --data FILE, or files = [...] under [data]")
    files = [_locate(name, data) for name in settings.files]
    try:
        return _load(files, settings)
    except MissingColumnError as error:
        raise MissingColumnError(
            f"{error}; name its columns with --columns, or columns = [...] under [data]"
        ) from error


def _load(files: list[str], settings: DataSettings) -> AnyCorpus:
    read = stacked_corpus if settings.stack else partial(read_corpus, stream=settings.stream)
    return read(
        files,
        settings.columns,
        limit=settings.limit,
        keep_duplicates=settings.keep_duplicates,
        with_clauses=settings.clauses,
    )


def _locate(name: str, data: str | None) -> str:
    if name == STDIN or name.startswith(HUB):
        return name
    return locate_file(name, data, remedy="give the text to train on with --data FILE")


def locate_file(name: str, data: str | os.PathLike[str] | None, *, remedy: str) -> str:
    """Return the file, or the file of this name in the data folder (`data` or `$LAYERWISE_DATA`).

    Args:
        name: A path; ~ is the home folder.
        data: The data folder.
        remedy: The end of the error message if neither exists.
    """
    path, folder = Path(name).expanduser(), None
    if not path.is_file():
        folder = data_folder(data)
        path = folder / path if folder else path
    if not path.is_file():
        where = f"nor in the data folder {folder}" if folder else "and no data folder is set (LAYERWISE_DATA)"
        raise InputError(f"{name}: no such file, {where}; {remedy}")
    if not guess_format(str(path)):
        raise InputError(
            f"{name}: its ending {path.suffix!r} tells no format; name it .txt, .csv, .tsv, .jsonl or .parquet"
        )
    return str(path)


def _read(row_filter: RowFilter, rows: Iterable[Texts], name: str, label: str, limit: int | None) -> Corpus:
    columns = kept_columns(row_filter, rows, name)
    first = f", first {limit:,} rows" if limit == row_filter.counts.kept else ""
    return Corpus(columns, label + first, row_filter.counts)
