"""The text of a training: one to three columns, read and cleaned, in memory or streamed.

One column holds sentences (or anchors), two hold anchors and positives (or texts and their paraphrases), three a hard
negative as well.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, compress, islice, pairwise
from pathlib import Path
from typing import Literal, overload

import numpy as np

from layerwise.data import STDIN, data_folder, find_file, find_tasks, guess_format, read_task
from layerwise.digests import json_digest, text_digest
from layerwise.errors import InputError, MissingColumnError
from layerwise.postprocess import ENCODER, FittedOn, Hashes
from layerwise.train.contrastive.settings import DataSettings
from layerwise.train.contrastive.text_rows import (
    HUB,
    MAX_COLUMNS,
    CorpusCounts,
    ExactDedup,
    Paths,
    RecentDedup,
    RowFilter,
    TextRows,
    Texts,
)

log = logging.getLogger(__name__)
_CHUNK = 16_384
_FITTED_CHUNK = 65_536


@dataclass(frozen=True)
class Corpus:
    """Texts in memory.

    Args:
        columns: One to three columns of texts; row i of each belongs together.
        source: Its name in records.
        counts: How many rows were read, dropped and kept.
    """

    columns: tuple[Texts, ...] = field(repr=False)
    source: str
    counts: CorpusCounts

    def __post_init__(self) -> None:
        _check_columns(self.columns)

    @classmethod
    def of(cls, *columns: Sequence[str], source: str, keep_duplicates: bool = False) -> "Corpus":
        """From lists of texts, cleaned as those of a file are.

        >>> Corpus.of(["A cat sat.", " ", "It rained.", "A cat sat. "], source="four rows").counts
        CorpusCounts(read=4, empty=1, duplicates=1, kept=2)
        """
        _check_columns(columns)
        rows = RowFilter(None if keep_duplicates else ExactDedup())
        return cls(_filtered(rows, zip(*columns, strict=True), source), source, rows.counts)

    @property
    def width(self) -> int:
        """How many columns of texts there are."""
        return len(self.columns)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self)

    @cached_property
    def fitted_on(self) -> FittedOn:
        """The record of all its sentences, for what is trained on them."""
        return FittedOn.of(list(chain.from_iterable(self.columns)), source=self.source, what=ENCODER)

    @cached_property
    def digest(self) -> str:
        """Of all texts in their order."""
        return text_digest(chain.from_iterable(self.columns))

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Texts]:
        """Row by row."""
        return zip(*self.columns, strict=True)


class StreamedCorpus:
    """Texts beyond memory: each iteration reads the files again.

    Empty rows are dropped as in a `Corpus`; repeated ones only where they are near each other, see `RecentDedup`.

    Args:
        texts: Where the rows come from; standard input is refused, for it cannot be read twice.
        limit: Only the first rows, counted after dropping.
        keep_duplicates: Keep repeated rows.
        rows: How many rows there are after dropping, if that is known: progress and schedules need it.
    """

    def __init__(
        self, texts: TextRows, *, limit: int | None = None, keep_duplicates: bool = False, rows: int | None = None
    ) -> None:
        if STDIN in texts.paths:
            raise InputError("standard input cannot be streamed, for each epoch reads it again; give a file")
        self._texts = texts
        self._limit = limit
        self._keep_duplicates = keep_duplicates
        self._filter = self._new_filter()
        self.rows = rows
        self._read_two()

    @property
    def source(self) -> str:
        """Its name in records."""
        return self._texts.label + (f", at most {self._limit:,} rows" if self._limit else "")

    @property
    def width(self) -> int:
        """How many columns of texts there are."""
        return len(self._texts.columns)

    @property
    def counts(self) -> CorpusCounts:
        """Counts of the latest reading, as far as it went."""
        return self._filter.counts

    @cached_property
    def fitted_on(self) -> FittedOn:
        """The record of all its sentences, also where training ends before their end; reads the files once."""
        rows = iter(self)
        parts = iter(lambda: list(chain.from_iterable(islice(rows, _FITTED_CHUNK))), [])
        return FittedOn.of_parts(parts, source=self.source, what=ENCODER)

    @property
    def digest(self) -> str:
        """Of its settings and the sizes of its files: a digest of the texts would read them all."""
        sizes = [Path(path).stat().st_size if Path(path).is_file() else None for path in self._texts.paths]
        return json_digest([self._texts.label, self._texts.columns, sizes, self._limit, self._keep_duplicates])

    def __iter__(self) -> Iterator[Texts]:
        row_filter = self._filter = self._new_filter()
        yield from row_filter(self._texts)
        row_filter.require_two(self._texts.name)
        if self.rows not in (None, row_filter.counts.kept):
            log.warning("%s has %d rows, not %d as declared", self._texts.name, row_filter.counts.kept, self.rows)

    def _new_filter(self) -> RowFilter:
        return RowFilter(None if self._keep_duplicates else RecentDedup(), self._limit)

    def _read_two(self) -> None:
        """Read until two rows differ, so that unusable data is refused before a model is loaded."""
        any(row != before for before, row in pairwise(self))


AnyCorpus = Corpus | StreamedCorpus


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
    """The texts of a file, of several, or of a hub's data set; rows with an empty text and repeated rows are dropped.

    Args:
        path: Text, CSV, TSV, JSONL or Parquet files, "-" for standard input, "hub:owner/name:split" for hub data; of
            several, one is read after the other.
        columns: The names of one to three columns of texts; a text file has one column, whatever its name.
        limit: Only the first rows, counted after dropping.
        format: The files' format, where their endings do not tell.
        where: (column, value): only rows with this value.
        keep_duplicates: Keep repeated rows.
        with_clauses: After each row of one column, the clauses of its text as rows, see `clauses`.
        stream: Hold no more than a few batches in memory and read the files in each epoch, see `StreamedCorpus`.
        rows: With `stream`: how many rows there are after dropping, if that is known.
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
    """The columns of files stacked into one: file by file, in each column by column."""
    parts = [TextRows.of([path], (column,), with_clauses=with_clauses) for path in paths for column in columns]
    names, labels = (
        " + ".join(dict.fromkeys(texts)) for texts in zip(*((p.name, p.label) for p in parts), strict=True)
    )
    row_filter = RowFilter(None if keep_duplicates else ExactDedup(), limit)
    return _read(row_filter, chain.from_iterable(parts), names, labels, limit)


def load_corpus(settings: DataSettings, data: str | None = None) -> AnyCorpus:
    """The text of a recipe's [data]; `data` is the data folder."""
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
    """The file itself, or the one of this name in the data folder (`data`, else `$LAYERWISE_DATA`).

    Args:
        name: A path; ~ is the home folder.
        data: The data folder.
        remedy: The end of the error where there is neither.
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


def equal_to_evaluation(
    corpus: AnyCorpus, tasks: Iterable[str], folder: str | os.PathLike[str] | None = None
) -> dict[str, int]:
    """Task -> how many different sentences of the corpus are among the task's, of any split.

    Sentences are equal, and different, by their letters and digits, as `FittedOn` has it. Tasks whose file is not on
    this machine are left out; nothing is fetched. A streamed corpus is read once for it.
    """
    files = [(task, find_file(task, folder)) for task in find_tasks(tasks)]
    task_texts = {task.name: read_task(task, file).texts for task, file in files if file}
    all_texts = FittedOn.of(list(chain.from_iterable(task_texts.values())), source="tasks")
    sentences = chain.from_iterable(corpus) if task_texts else iter(())
    equal: set[str] = set()
    while chunk := list(islice(sentences, _CHUNK)):
        equal.update(compress(chunk, all_texts.seen(chunk)))
    hashes = _hashes(list(equal))
    return {name: len(np.intersect1d(hashes, _hashes(texts))) for name, texts in task_texts.items()}


def _hashes(texts: Sequence[str]) -> Hashes:
    """A hash of each different sentence."""
    return FittedOn.of(texts, source="").hashes


def _read(row_filter: RowFilter, rows: Iterable[Texts], name: str, label: str, limit: int | None) -> Corpus:
    columns = _filtered(row_filter, rows, name)
    first = f", first {limit:,} rows" if limit == row_filter.counts.kept else ""
    return Corpus(columns, label + first, row_filter.counts)


def _filtered(row_filter: RowFilter, rows: Iterable[Sequence[str]], name: str) -> tuple[Texts, ...]:
    """The columns of the rows that are kept."""
    columns = tuple(zip(*row_filter(rows), strict=True))
    row_filter.require_two(name)
    return columns


def _check_columns(columns: Sequence[Sequence[str]]) -> None:
    if not 1 <= len(columns) <= MAX_COLUMNS:
        raise InputError(f"{len(columns)} columns of texts; give one (texts), two (pairs) or three (triples)")
    if any(isinstance(column, str) for column in columns):
        raise InputError("a column is one string; give a list of texts")
    if len(set(map(len, columns))) > 1:
        raise InputError(
            f"the columns have {', '.join(str(len(column)) for column in columns)} rows; give equally many"
        )
