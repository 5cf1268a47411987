"""What a model is trained on: one to three columns of texts, read and cleaned, in memory or streamed.

One column is plain sentences (or anchors), two are anchors and positives (or texts and their paraphrases), three have
a hard negative as well.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, compress, islice
from typing import Literal, overload

import numpy as np

from layerwise.data.catalog import find_tasks
from layerwise.data.locate import find_file
from layerwise.data.task_rows import read_task
from layerwise.errors import InputError
from layerwise.postprocess.fitted_on import ENCODER, FittedOn, Hashes
from layerwise.train.corpus_rows import MOST_COLUMNS, Paths, TextRows, Texts
from layerwise.train.corpus_sieve import AllRows, CorpusCounts, Sieve
from layerwise.train.corpus_stream import StreamedCorpus

_CHUNK = 16_384


@dataclass(frozen=True)
class Corpus:
    """Texts in memory.

    Args:
        columns: One to three columns of texts; row i of each belongs together.
        source: What records call it.
        counts: How many rows were read, dropped and kept.
    """

    columns: tuple[Texts, ...] = field(repr=False)
    source: str
    counts: CorpusCounts

    def __post_init__(self) -> None:
        _check_columns(self.columns)

    @classmethod
    def of(cls, *columns: Sequence[str], source: str, keep_duplicates: bool = False) -> "Corpus":
        """From texts at hand, cleaned as those of a file are.

        >>> Corpus.of(["A cat sat.", " ", "It rained.", "A cat sat. "], source="four rows").counts
        CorpusCounts(read=4, empty=1, duplicates=1, kept=2)
        """
        _check_columns(columns)
        sieve = Sieve(None if keep_duplicates else AllRows())
        return cls(_sifted(sieve, zip(*columns, strict=True), source), source, sieve.counts)

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

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Texts]:
        """Row by row."""
        return zip(*self.columns, strict=True)


@overload
def read_corpus(
    path: Paths,
    columns: str | Sequence[str],
    *,
    limit: int | None = ...,
    format: str | None = ...,
    where: tuple[str, str] | None = ...,
    keep_duplicates: bool = ...,
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
    stream: bool,
    rows: int | None = ...,
) -> Corpus | StreamedCorpus: ...


def read_corpus(
    path: Paths,
    columns: str | Sequence[str],
    *,
    limit: int | None = None,
    format: str | None = None,
    where: tuple[str, str] | None = None,
    keep_duplicates: bool = False,
    stream: bool = False,
    rows: int | None = None,
) -> Corpus | StreamedCorpus:
    """The texts of a file, of several, or of a hub's data set; rows with an empty text and repeated rows are dropped.

    Args:
        path: Text, CSV, TSV, JSONL or Parquet files, "-" for standard input, "hub:owner/name:split" for hub data; of
            several, one is read after the other.
        columns: The names of one to three columns of texts; a text file has one column, whatever its name.
        limit: Only the first rows, counted after dropping.
        format: The files' format, where their endings do not tell.
        where: (column, value): only rows with this value.
        keep_duplicates: Keep repeated rows.
        stream: Hold no more than a few batches in memory and read the files in each epoch, see `StreamedCorpus`.
        rows: With `stream`: how many rows there are after dropping, if that is known.
    """
    texts = TextRows.of(path, columns, format=format, where=where)
    if stream:
        return StreamedCorpus(texts, limit=limit, keep_duplicates=keep_duplicates, rows=rows)
    if rows is not None:
        raise InputError("rows is for a streamed corpus; to read only some rows, give limit")
    sieve = Sieve(None if keep_duplicates else AllRows(), limit)
    return _read(sieve, texts, texts.name, texts.label, limit)


def stacked_corpus(
    paths: Sequence[str], columns: Sequence[str], *, limit: int | None = None, keep_duplicates: bool = False
) -> Corpus:
    """One column of the texts of several: file by file, of each all texts of one column, then those of the next."""
    parts = [TextRows.of([path], (column,)) for path in paths for column in columns]
    names, labels = (
        " + ".join(dict.fromkeys(texts)) for texts in zip(*((p.name, p.label) for p in parts), strict=True)
    )
    sieve = Sieve(None if keep_duplicates else AllRows(), limit)
    return _read(sieve, chain.from_iterable(parts), names, labels, limit)


def equal_to_evaluation(
    corpus: Corpus | StreamedCorpus, tasks: Iterable[str], folder: str | os.PathLike[str] | None = None
) -> dict[str, int]:
    """Task -> how many different sentences of the corpus are among the task's, of any split.

    Sentences are equal, and different, by their letters and digits, as `FittedOn` has it. Tasks whose file is not on
    this machine are left out; nothing is fetched. A streamed corpus is read once for it.
    """
    files = [(task, find_file(task, folder)) for task in find_tasks(tasks)]
    theirs = {task.name: read_task(task, file).texts for task, file in files if file}
    any_of_them = FittedOn.of(list(chain.from_iterable(theirs.values())), source="tasks")
    texts = chain.from_iterable(corpus) if theirs else iter(())
    equal: set[str] = set()
    while chunk := list(islice(texts, _CHUNK)):
        equal.update(compress(chunk, any_of_them.seen(chunk)))
    ours = _hashes(list(equal))
    return {name: len(np.intersect1d(ours, _hashes(texts))) for name, texts in theirs.items()}


def _hashes(texts: Sequence[str]) -> Hashes:
    """A hash of each different sentence."""
    return FittedOn.of(texts, source="").hashes


def _read(sieve: Sieve, rows: Iterable[Texts], name: str, label: str, limit: int | None) -> Corpus:
    found = _sifted(sieve, rows, name)
    first = f", first {limit:,} rows" if limit == sieve.counts.kept else ""
    return Corpus(found, label + first, sieve.counts)


def _sifted(sieve: Sieve, rows: Iterable[Sequence[str]], name: str) -> tuple[Texts, ...]:
    """The columns of the rows that are kept."""
    columns = tuple(zip(*sieve(rows), strict=True))
    sieve.require_two(name)
    return columns


def _check_columns(columns: Sequence[Sequence[str]]) -> None:
    if not 1 <= len(columns) <= MOST_COLUMNS:
        raise InputError(f"{len(columns)} columns of texts; give one (texts), two (pairs) or three (triples)")
    if any(isinstance(column, str) for column in columns):
        raise InputError("a column is one string; give a list of texts")
    if len(set(map(len, columns))) > 1:
        raise InputError(
            f"the columns have {', '.join(str(len(column)) for column in columns)} rows; give equally many"
        )
