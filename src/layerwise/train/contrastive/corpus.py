"""The training text: one to three columns, read and cleaned, in memory or streamed.

One column holds sentences (or anchors), two hold anchors and positives (or texts and their paraphrases), three a hard
negative as well.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, compress, islice, pairwise
from pathlib import Path

import numpy as np

from layerwise.data import STDIN, find_file, find_tasks, read_task
from layerwise.digests import json_digest, text_digest
from layerwise.errors import InputError
from layerwise.postprocess import ENCODER, FittedOn, Hashes
from layerwise.train.contrastive.text_rows import (
    MAX_COLUMNS,
    CorpusCounts,
    ExactDedup,
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
        columns: One to three aligned columns of texts.
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
        """Build from lists of texts, cleaned like those of a file.

        >>> Corpus.of(["A cat sat.", " ", "It rained.", "A cat sat. "], source="four rows").counts
        CorpusCounts(read=4, empty=1, duplicates=1, kept=2)
        """
        _check_columns(columns)
        rows = RowFilter(None if keep_duplicates else ExactDedup())
        return cls(kept_columns(rows, zip(*columns, strict=True), source), source, rows.counts)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self)

    @cached_property
    def fitted_on(self) -> FittedOn:
        """The record of all sentences, for the model that is trained on them."""
        return FittedOn.of(list(chain.from_iterable(self.columns)), source=self.source, what=ENCODER)

    @cached_property
    def digest(self) -> str:
        """A digest of all texts in order."""
        return text_digest(chain.from_iterable(self.columns))

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Texts]:
        """Iterate over the rows."""
        return zip(*self.columns, strict=True)


class StreamedCorpus:
    """Texts larger than memory: each iteration reads the files again.

    Empty rows are dropped as in a `Corpus`; duplicates only if they are near each other, see `RecentDedup`.

    Args:
        texts: The source of the rows; not standard input, which cannot be read twice.
        limit: Only the first rows, counted after dropping.
        keep_duplicates: Keep repeated rows.
        rows: The number of rows after dropping, if known; progress and schedules need it.
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
        """The number of columns."""
        return len(self._texts.columns)

    @property
    def counts(self) -> CorpusCounts:
        """Counts of the latest iteration so far."""
        return self._filter.counts

    @cached_property
    def fitted_on(self) -> FittedOn:
        """The record of all sentences, even if training ends before reading them all; reads the files once."""
        rows = iter(self)
        parts = iter(lambda: list(chain.from_iterable(islice(rows, _FITTED_CHUNK))), [])
        return FittedOn.of_parts(parts, source=self.source, what=ENCODER)

    @property
    def digest(self) -> str:
        """A digest of the settings and file sizes, as a digest of the texts would read them all."""
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
        """Read until two rows differ, so that unusable data fails before a model is loaded."""
        any(row != previous for previous, row in pairwise(self))


AnyCorpus = Corpus | StreamedCorpus


def equal_to_evaluation(
    corpus: AnyCorpus, tasks: Iterable[str], folder: str | os.PathLike[str] | None = None
) -> dict[str, int]:
    """Count, by task, the distinct sentences of the corpus that occur in any split of the task.

    Sentences are compared by letters and digits, as in `FittedOn`. Tasks without a local file are left out; nothing is
    downloaded. A streamed corpus is read once.
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
    """Return the hashes of the distinct sentences."""
    return FittedOn.of(texts, source="").hashes


def kept_columns(row_filter: RowFilter, rows: Iterable[Sequence[str]], name: str) -> tuple[Texts, ...]:
    """Return the columns of the kept rows."""
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
