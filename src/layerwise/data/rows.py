"""Streams rows of files: text, CSV, TSV, JSONL, Parquet and standard input.

Memory does not grow with the file. An error (not UTF-8, a missing column, a value that is no text) names the file and
the row, and says what to do. A lenient source yields such a row with its error, and continues.
"""

import codecs
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from layerwise.errors import InputError, MissingColumnError
from layerwise.registry import Registry
from layerwise.stores import is_url, place_of, readable, without_secrets
from layerwise.texts import has_lone_surrogate

STDIN = "-"
_SUFFIXES = {
    **dict.fromkeys((".txt", ".text"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".csv": "csv",
    ".tsv": "tsv",
}
_PARQUET_ROWS = 4096
_UTF8 = "utf-8"
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
_LONGEST_FIELD = 2**31 - 1  # the csv module's limit of 128 KiB is too low for texts


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its number (for errors: the line of a text file, otherwise the row), and the values of its columns.

    `error` says why it cannot be read, in a lenient source; then there are no values.
    """

    place: int
    values: tuple[Any, ...]
    error: InputError | None = None


RowReader = Callable[["RowSource"], Iterator[Row]]
FORMATS: Registry[RowReader] = Registry("input format")


@dataclass(frozen=True)
class RowSource:
    """A file (or "-"), its format, and the columns to read. A text file has one column, whatever its name.

    A `lenient` source yields rows that cannot be read with their error instead of raising it. Bytes that are not of the
    encoding become halves of surrogate pairs, which `text_of` refuses.
    """

    path: str
    format: str
    columns: tuple[str, ...]
    encoding: str = _UTF8
    delimiter: str = ","
    lenient: bool = False

    @classmethod
    def of(
        cls,
        path: str,
        columns: Sequence[str],
        *,
        format: str | None = None,
        encoding: str | None = None,
        delimiter: str | None = None,
    ) -> "RowSource":
        """Build a source; the default format is that of the file's suffix.

        Text is UTF-8 unless `encoding` names another; `delimiter` is a character, or tab, comma, semicolon, pipe.
        """
        place, shown = place_of(path), without_secrets(path)
        if path != STDIN and not place.is_file():
            if place.is_dir():
                raise InputError(f"{shown}: is a folder; give a file in it, or - for standard input")
            if not place.exists():
                raise InputError(f"{shown}: no such file; check the path, or give - for standard input")
        known = format or guess_format(path)
        if not known:
            raise InputError(
                f"{shown}: its ending {Path(path).suffix!r} names no format; "
                f"give one: --input-format {'|'.join(FORMATS)}"
            )
        FORMATS[known]
        if known == "text" and len(set(columns)) > 1:
            raise InputError(f"{shown}: a text file has no column {columns[1]!r}; give CSV, JSONL or Parquet")
        if known == "parquet" and path == STDIN:
            raise InputError("Parquet cannot be read from standard input, as it is read from its end; give the file")
        return cls(path, known, tuple(columns), _encoding(known, encoding), _delimiter(known, delimiter))

    @property
    def name(self) -> str:
        """The name in errors."""
        return "standard input" if self.path == STDIN else without_secrets(self.path)

    def __iter__(self) -> Iterator[Row]:
        return FORMATS[self.format](self)

    def fail(self, place: int, message: str) -> InputError:
        """Build an error about a row."""
        return InputError(f"{self.name}:{place}: {message}")

    def bad(self, error: InputError, place: int) -> Row:
        """Handle an unreadable row: raise its error unless the source is lenient."""
        if not self.lenient:
            raise error
        return Row(place, (), error)


def guess_format(path: str) -> str:
    """Guess the format of a file from its suffix; empty if unknown; standard input is text."""
    return _SUFFIXES.get(Path(path).suffix.lower(), "text" if path == STDIN else "")


def column_names(path: str, **reading: str | None) -> tuple[str, ...]:
    """The columns of a file by its header, its first object or its schema; a text file has one, `text`.

    Args:
        path: The file.
        reading: Its format, encoding and delimiter, as for `RowSource.of`.
    """
    source = RowSource.of(path, (), **reading)
    if source.format == "text":
        return ("text",)
    if source.format == "parquet":
        return tuple(arrow_schema(source).names)
    first = next((line for line in lines_of(source) if line.strip()), "")
    if source.format == "jsonl":
        try:
            return tuple(json.loads(first))
        except (ValueError, TypeError) as error:
            raise source.fail(1, "not a JSON object; write one object a line") from error
    return tuple(next(csv.reader([first], delimiter=source.delimiter), ()))


def text_of(source: RowSource, row: Row, column: int) -> str:
    """Return a column's value, which must be a str."""
    value = row.values[column]
    if isinstance(value, str):
        if has_lone_surrogate(value):
            what = f"is not {source.encoding}" if _has_escaped_byte(value) else "holds half a surrogate pair, no text"
            raise source.fail(row.place, f"column {source.columns[column]!r} {what}")
        return value
    shown = "null" if value is None else repr(value)
    raise source.fail(row.place, f"column {source.columns[column]!r} is {shown}, expected a text")


def _has_escaped_byte(text: str) -> bool:
    """Whether a text holds bytes that a lenient source could not decode."""
    return any("\udc80" <= char <= "\udcff" for char in text)


def written_text_of(source: RowSource, row: Row, column: int) -> str:
    """Return a column's value, which must be a non-empty str."""
    text = text_of(source, row, column)
    if not text.strip():
        what = "the line" if source.format == "text" else f"column {source.columns[column]!r}"
        raise source.fail(row.place, f"{what} is empty; give a text, or drop the row")
    return text


def lines_of(source: RowSource) -> Iterator[str]:
    """The lines of a file that is text, decoded."""
    with _open_text(source) as lines:
        yield from (line for _, line in _numbered(source, lines))


def column_type(source: RowSource, name: str) -> Any:
    """The Arrow type of a Parquet file's column."""
    return arrow_schema(source).field(name).type


def arrow_schema(source: RowSource) -> Any:
    """The Arrow schema of a Parquet file; that of an object in a store is read once."""
    return _stored_schema(source.path) if is_url(source.path) else _schema(source.path)


def _schema(path: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(readable(path))
    except pa.ArrowException as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error


_stored_schema = lru_cache(maxsize=8)(_schema)


@FORMATS.register("text")
def _read_text(source: RowSource) -> Iterator[Row]:
    with _open_text(source) as lines:
        for place, line in _numbered(source, lines):
            yield Row(place, (line.rstrip("\r\n"),) * len(source.columns))


@FORMATS.register("csv")
def _read_csv(source: RowSource) -> Iterator[Row]:
    return _read_delimited(source)


@FORMATS.register("tsv")
def _read_tsv(source: RowSource) -> Iterator[Row]:
    return _read_delimited(source)


def _read_delimited(source: RowSource) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_FIELD)
    with _open_text(source) as lines:
        plain = (line for _, line in _numbered(source, lines))
        reader = csv.reader(plain, delimiter=source.delimiter, strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise InputError(f"{source.name}: the file is empty; expected a header row")
            places = _places(source, header)
            for record in _records(source, reader):
                if isinstance(record, Row):
                    yield record
                elif record and len(record) != len(header):
                    counted = f"{len(record)} columns, but the header has {len(header)}"
                    remedy = "put quotes around a field that holds a separator"
                    yield source.bad(source.fail(reader.line_num, f"{counted}; {remedy}"), reader.line_num)
                elif record:
                    yield Row(reader.line_num, tuple(record[place] for place in places))
        except csv.Error as error:
            raise _csv_error(source, reader, error) from error


def _records(source: RowSource, reader: Any) -> Iterator[list[str] | Row]:
    """The records of a CSV reader. One that is broken is a bad row, unless it swallowed the rest of the file."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if not source.lenient or "end of data" in str(error):
                raise
            yield source.bad(_csv_error(source, reader, error), reader.line_num)


def _csv_error(source: RowSource, reader: Any, error: csv.Error) -> InputError:
    return source.fail(reader.line_num, f"not valid CSV: {error}; put quotes around the whole field")


@FORMATS.register("jsonl")
def _read_jsonl(source: RowSource) -> Iterator[Row]:
    with _open_text(source) as lines:
        for place, line in _numbered(source, lines):
            if not line.strip():
                continue
            try:
                yield _json_row(source, place, line)
            except InputError as error:
                if not source.lenient:
                    raise
                yield source.bad(error, place)


def _json_row(source: RowSource, place: int, line: str) -> Row:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise source.fail(place, f"not valid JSON: {str(error).splitlines()[0]}; write one object a line") from error
    if not isinstance(record, dict):
        raise source.fail(place, f"expected a JSON object, not {type(record).__name__}")
    _places(source, list(record), at=place)
    return Row(place, tuple(record[column] for column in source.columns))


@FORMATS.register("parquet")
def _read_parquet(source: RowSource) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(readable(source.path))
        _places(source, file.schema_arrow.names)
        place = 0
        names = list(dict.fromkeys(source.columns))
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=names):
            columns = [_values(source, batch.column(name)) for name in source.columns]
            for values in zip(*columns, strict=True):
                place += 1
                yield Row(place, values)
    except (pa.ArrowException, OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"{source.name}: not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _values(source: RowSource, column: Any) -> list[Any]:
    """The values of an Arrow column; in a lenient source, texts of bytes that are not UTF-8 too."""
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
    except UnicodeError:
        if not source.lenient:
            raise
        data = column.cast(pa.large_binary()).to_pylist()
        values = [None if item is None else item.decode(_UTF8, "surrogateescape") for item in data]
    return values


def _places(source: RowSource, header: Sequence[str], at: int | None = None) -> list[int]:
    for column in source.columns:
        if column not in header:
            location = source.name if at is None else f"{source.name}:{at}"
            raise MissingColumnError(f"{location}: no column {column!r}; it has {shown_header(source, header)}")
        if list(header).count(column) > 1:
            raise InputError(f"{source.name}: the column {column!r} comes twice; rename one of them")
    return [list(header).index(column) for column in source.columns]


def shown_header(source: RowSource, header: Sequence[str]) -> str:
    """A file's columns, for errors; a single one with separators in it shows that the format is another."""
    shown = ", ".join(map(repr, header))
    marks = ";|\t," if source.format in ("csv", "tsv") and len(header) == 1 else ""
    other = next((mark for mark in marks if mark in header[0]), None)
    if other is None:
        return shown
    return f"{shown}, separated by {other!r}: *.csv needs commas and *.tsv tabs, or give --delimiter {other!r}"


@contextmanager
def _open_text(source: RowSource) -> Iterator[BinaryIO]:
    if source.path == STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = place_of(source.path).open("rb")
    except OSError as error:
        raise InputError(f"{source.name}: cannot be opened: {error.strerror}") from error
    with file:
        yield file


def _numbered(source: RowSource, lines: BinaryIO) -> Iterator[tuple[int, str]]:
    """Iterate over lines with their numbers, decoded one by one so that errors name the line."""
    if source.encoding != _UTF8:
        yield from _decoded(source, lines)
        return
    for place, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if place == 1 else _UTF8, _on_error(source))
        except UnicodeDecodeError as error:
            wide = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            other = "utf-16" if wide else "latin-1"
            raise source.fail(
                place,
                f"not UTF-8 ({error.reason}); save the file as UTF-8, or, where the command has the option, name its "
                f"encoding: --encoding {other}",
            ) from error
        yield place, text


def _on_error(source: RowSource) -> str:
    """The decoder's error handler."""
    return "surrogateescape" if source.lenient else "strict"


def _decoded(source: RowSource, lines: BinaryIO) -> Iterator[tuple[int, str]]:
    """Like `_numbered`, for encodings in which a newline may have several bytes."""
    place = 0
    text = io.TextIOWrapper(lines, encoding=source.encoding, errors=_on_error(source), newline="\n")
    try:
        for place, line in enumerate(text, start=1):
            yield place, line.removeprefix("\ufeff") if place == 1 else line
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise source.fail(
            place + 1, f"not {source.encoding} here or below ({reason}); name the file's encoding: --encoding"
        ) from error
    finally:
        if not lines.closed:
            text.detach()  # or it would close standard input


def _encoding(format: str, name: str | None) -> str:
    """Return the canonical name of a text encoding."""
    if name is None:
        return _UTF8
    if format == "parquet":
        raise InputError(f"--encoding {name} is for text, CSV, TSV and JSONL; Parquet knows its own, leave it out")
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        codec = None
    if codec is None or not codec._is_text_encoding:
        raise InputError(f"--encoding {name!r} is unknown; give one such as utf-8, utf-16, latin-1, cp1252, shift_jis")
    return _UTF8 if codec.name in ("utf-8", "utf-8-sig") else codec.name


def _delimiter(format: str, name: str | None) -> str:
    """The character between fields."""
    if name is None:
        return _DELIMITERS.get(format, ",")
    if format not in _DELIMITERS:
        raise InputError(f"--delimiter {name!r} is for CSV and TSV, not for {format}; leave it out")
    mark = _NAMED_DELIMITERS.get(name.lower(), name)
    if len(mark) != 1 or mark in '"\r\n':
        raise InputError(
            f"--delimiter {name!r} is not one character; give one such as ';', or tab, comma, semicolon, pipe or space"
        )
    return mark
