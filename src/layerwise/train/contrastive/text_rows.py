"""Reads rows of texts from files and hub data in constant memory, cleans and counts them.

Hub data is named "hub:owner/name", "hub:owner/name:split" or, where a data set has several configurations,
"hub:owner/name/configuration:split"; the split is "train" unless given. Only the requested columns are streamed.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from layerwise.data import STDIN, Row, RowSource, text_of
from layerwise.errors import InputError, MissingColumnError
from layerwise.extras import require
from layerwise.train.contrastive.clauses import clauses

Texts = tuple[str, ...]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
HUB = "hub:"
MAX_COLUMNS = 3
MIN_ROWS = 2  # contrast needs another sentence
_HUB_FORM = "expected hub:owner/name, hub:owner/name:split or hub:owner/name/configuration:split"
_NAMED_FILES = 3
_REMEMBERED = 1_000_000
_HASH_BYTES = 8


@dataclass(frozen=True)
class TextRows:
    """The source of rows of texts.

    Args:
        paths: Files, "-" or hub names, read in this order.
        columns: One to three columns of texts.
        format: The files' format; by default from their suffixes.
        where: (column, value): only rows with this value.
        with_clauses: After each row of one column, the clauses of its text as rows.
    """

    paths: Texts
    columns: Texts
    format: str | None = None
    where: tuple[str, str] | None = None
    with_clauses: bool = False

    @classmethod
    def of(
        cls,
        path: Paths,
        columns: str | Sequence[str],
        *,
        format: str | None = None,
        where: tuple[str, str] | None = None,
        with_clauses: bool = False,
    ) -> "TextRows":
        """Build from one path or several; raise for a missing file."""
        paths = [path] if isinstance(path, str | os.PathLike) else path
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not paths:
            raise InputError("no file to train on; give a file, or hub:owner/name")
        if not 1 <= len(names) <= MAX_COLUMNS:
            raise InputError(f"{len(names)} columns of texts; give one (text), two (pairs) or three (triples)")
        if with_clauses and len(names) > 1:
            raise InputError(f"clauses are of sentences in one column, but there are {len(names)}; leave clauses out")
        rows = cls(tuple(os.fspath(name) for name in paths), names, format, where, with_clauses)
        for name in rows.paths:
            rows._source(name)
        return rows

    @property
    def name(self) -> str:
        """The full paths, for errors."""
        return ", ".join("standard input" if path == STDIN else path for path in self.paths) + self._only()

    @property
    def label(self) -> str:
        """The file names without their folders, which are private, for records."""
        labels = [_label(path) for path in self.paths]
        more = len(labels) - _NAMED_FILES
        shown = [*labels[:_NAMED_FILES], *([f"and {more} more"] if more > 0 else [])]
        return ", ".join(shown) + self._only() + (" with clauses" if self.with_clauses else "")

    def __iter__(self) -> Iterator[Texts]:
        """Iterate over the rows' texts, unchanged; null is an empty text, as in CSV."""
        for path in self.paths:
            source = self._source(path)
            for row in _hub_rows(source) if path.startswith(HUB) else source:
                if self.where is None or str(row.values[-1]) == self.where[1]:
                    texts = tuple(_text(source, row, column) for column in range(len(self.columns)))
                    yield texts
                    if self.with_clauses:
                        yield from ((clause,) for clause in clauses(texts[0]))

    def _source(self, path: str) -> RowSource:
        names = (*self.columns, *((self.where[0],) if self.where else ()))
        if path.startswith(HUB):
            _hub_parts(path)
            return RowSource(path, "hub", names)
        return RowSource.of(path, names, format=self.format)

    def _only(self) -> str:
        return f" ({self.where[0]} = {self.where[1]})" if self.where else ""


def _text(source: RowSource, row: Row, column: int) -> str:
    return "" if row.values[column] is None else text_of(source, row, column)


def _label(path: str) -> str:
    if path == STDIN:
        return "standard input"
    if path.startswith(HUB) and not Path(_hub_parts(path)[0]).is_dir():
        return path
    return Path(path).name


def _hub_parts(path: str) -> tuple[str, str | None, str]:
    """Parse dataset, configuration and split."""
    name, colon, split = path.removeprefix(HUB).partition(":")
    if not name or (colon and not split):
        raise InputError(f"{path}: names no data set; {_HUB_FORM}")
    parts = name.split("/")
    if len(parts) == 3 and all(parts) and not Path(name).is_dir():
        return "/".join(parts[:2]), parts[2], split or "train"
    return name, None, split or "train"


def _hub_rows(source: RowSource) -> Iterator[Row]:
    for place, record in enumerate(_hub_records(source), start=1):
        _check_columns(source, list(record))
        yield Row(place, tuple(record[column] for column in source.columns))


def _hub_records(source: RowSource) -> Iterator[Mapping[str, Any]]:
    """Iterate over the dataset's records; errors of the hub become one line, the caller's pass through."""
    name, configuration, split = _hub_parts(source.path)
    require("train", "reading data from the hub", "datasets")
    datasets = import_module("datasets")
    failures = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
    try:
        data = datasets.load_dataset(name, configuration, split=split, streaming=True)
        columns = data.column_names
    except failures as error:
        raise _unreachable(source, error) from error
    if columns:
        _check_columns(source, columns)
        data = data.select_columns(list(dict.fromkeys(source.columns)))
    try:
        yield from data
    except failures as error:
        raise _unreachable(source, error) from error


def _check_columns(source: RowSource, columns: Sequence[str]) -> None:
    for column in source.columns:
        if column not in columns:
            raise MissingColumnError(f"{source.name}: no column {column!r}; it has {', '.join(map(repr, columns))}")


def _unreachable(source: RowSource, error: Exception) -> InputError:
    reason = " ".join(str(error or type(error).__name__).split()).rstrip(".")
    return InputError(f"{source.name}: cannot be read from the hub: {reason}; check name and network, or give a file")


@dataclass(frozen=True)
class CorpusCounts:
    """Rows read = empty + duplicates + kept. Rows excluded by a condition or a limit are not counted as read."""

    read: int = 0
    empty: int = 0
    duplicates: int = 0
    kept: int = 0

    def __str__(self) -> str:
        return f"{self.read:,} rows read, {self.empty:,} empty, {self.duplicates:,} repeated, {self.kept:,} kept"


class Dedup(Protocol):
    """Recognises repeated rows."""

    def is_new(self, row: Texts) -> bool:
        """Whether the row is new; it is remembered."""


class ExactDedup:
    """Remembers every row, for rows that are in memory anyway."""

    def __init__(self) -> None:
        self._rows: set[Texts] = set()

    def is_new(self, row: Texts) -> bool:
        """Whether the row is new."""
        count = len(self._rows)
        self._rows.add(row)
        return len(self._rows) > count


class RecentDedup:
    """Remembers 8-byte hashes of the latest rows, in bounded memory.

    It stores between half of `capacity` and `capacity` hashes: of two halves, the older is dropped when the newer is
    full. Earlier duplicates are not detected. The hash is the same in every process, so that all processes of a
    training keep the same rows.
    """

    def __init__(self, capacity: int = _REMEMBERED) -> None:
        self._half = max(1, capacity // 2)
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def is_new(self, row: Texts) -> bool:
        """Whether the row is not among the remembered ones."""
        data = "\0".join(row).encode()
        key = int.from_bytes(hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), "little")
        if key in self._newer:
            return False
        known = key in self._older
        self._newer.add(key)
        if len(self._newer) == self._half:
            self._older, self._newer = self._newer, set()
        return not known


class RowFilter:
    """Strips the texts of rows, drops rows with an empty text and repeated rows, and counts.

    Args:
        dedup: Recognises repeated rows; None keeps them.
        limit: Only the first rows, counted after dropping.
    """

    def __init__(self, dedup: Dedup | None, limit: int | None = None) -> None:
        if limit is not None and limit < MIN_ROWS:
            raise InputError(f"limit is {limit}; training needs {MIN_ROWS} rows or more")
        self._dedup = dedup
        self._limit = limit
        self._read = self._empty = self._kept = 0
        self._first: Texts | None = None
        self._differ = False

    @property
    def counts(self) -> CorpusCounts:
        """The counts so far."""
        return CorpusCounts(self._read, self._empty, self._read - self._empty - self._kept, self._kept)

    def __call__(self, rows: Iterable[Sequence[str]]) -> Iterator[Texts]:
        """Iterate over the kept rows."""
        for texts in rows:
            row = tuple(text.strip() for text in texts)
            self._read += 1
            if not all(row):
                self._empty += 1
            elif self._dedup is None or self._dedup.is_new(row):
                self._kept += 1
                self._first = self._first or row
                self._differ = self._differ or row != self._first
                yield row
                if self._kept == self._limit:
                    return

    def require_two(self, name: str) -> None:
        """Raise for data without two different rows."""
        if not self._kept:
            raise InputError(f"{name}: nothing to train on ({self.counts}); check the file and the columns' names")
        if not self._differ:
            raise InputError(
                f"{name}: contrastive training needs at least two different sentences, found one ({self.counts}); "
                f"give a larger file"
            )
