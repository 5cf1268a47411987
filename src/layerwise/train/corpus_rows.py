"""Files and hub data to rows of texts, one after the other; memory does not grow with them.

Hub data is named "hub:owner/name", "hub:owner/name:split" or, where a data set has several configurations,
"hub:owner/name/configuration:split"; the split is "train" unless given. It is streamed, and only the columns asked for.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from layerwise.data.rows import STDIN, Row, RowSource, text_of
from layerwise.errors import InputError, MissingColumnError

Texts = tuple[str, ...]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
HUB = "hub:"
MOST_COLUMNS = 3
_HUB_FORM = "expected hub:owner/name, hub:owner/name:split or hub:owner/name/configuration:split"
_NAMED_FILES = 3


@dataclass(frozen=True)
class TextRows:
    """Where rows of texts come from.

    Args:
        paths: Files, "-" or hub names, read in this order.
        columns: One to three columns of texts.
        format: The files' format, where their endings do not tell.
        where: (column, value): only rows with this value.
    """

    paths: Texts
    columns: Texts
    format: str | None = None
    where: tuple[str, str] | None = None

    @classmethod
    def of(
        cls,
        path: Paths,
        columns: str | Sequence[str],
        *,
        format: str | None = None,
        where: tuple[str, str] | None = None,
    ) -> "TextRows":
        """From one path or several; files that are not there are told at once."""
        several = [path] if isinstance(path, str | os.PathLike) else path
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not several:
            raise InputError("no file to train on; give a file, or hub:owner/name")
        if not 1 <= len(names) <= MOST_COLUMNS:
            raise InputError(f"{len(names)} columns of texts; give one (text), two (pairs) or three (triples)")
        rows = cls(tuple(os.fspath(one) for one in several), names, format, where)
        for one in rows.paths:
            rows._source(one)
        return rows

    @property
    def name(self) -> str:
        """What errors call it: whole paths."""
        return ", ".join("standard input" if path == STDIN else path for path in self.paths) + self._only()

    @property
    def label(self) -> str:
        """What records call it: names of files without their folders, which are nobody's business."""
        labels = [_label(path) for path in self.paths]
        more = len(labels) - _NAMED_FILES
        shown = [*labels[:_NAMED_FILES], *([f"and {more} more"] if more > 0 else [])]
        return ", ".join(shown) + self._only()

    def __iter__(self) -> Iterator[Texts]:
        """Each row's texts as they stand; a null is an empty text, as in CSV."""
        for path in self.paths:
            source = self._source(path)
            for row in _hub_rows(source) if path.startswith(HUB) else source:
                if self.where is None or str(row.values[-1]) == self.where[1]:
                    yield tuple(_text(source, row, column) for column in range(len(self.columns)))

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
    """Data set, configuration, split."""
    name, colon, split = path.removeprefix(HUB).partition(":")
    if not name or (colon and not split):
        raise InputError(f"{path}: names no data; {_HUB_FORM}")
    parts = name.split("/")
    if len(parts) == 3 and all(parts) and not Path(name).is_dir():
        return "/".join(parts[:2]), parts[2], split or "train"
    return name, None, split or "train"


def _hub_rows(source: RowSource) -> Iterator[Row]:
    for place, record in enumerate(_hub_records(source), start=1):
        _check_columns(source, list(record))
        yield Row(place, tuple(record[column] for column in source.columns))


def _hub_records(source: RowSource) -> Iterator[Mapping[str, Any]]:
    """The data set's records. What goes wrong at the hub is one line; what the reader of these rows says is its own."""
    name, configuration, split = _hub_parts(source.path)
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
    return InputError(f"{source.name}: can't be read from the hub: {reason}; check name and network, or give a file")
