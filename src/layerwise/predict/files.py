"""Predicts the rows of a file and adds the predictions as columns: reads any format, writes tables."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

from layerwise.data import STDIN, Row, RowSource, arrow_schema, column_type, lines_of, written_text_of
from layerwise.encoder import Progress, no_progress
from layerwise.errors import InputError, LayerwiseError, MissingColumnError
from layerwise.files import atomic_file, check_writable
from layerwise.predict.objective import TaskSetup
from layerwise.predict.predictor import Predictions, Predictor

LABEL, SCORE, PROBABILITY = "predicted_label", "predicted_score", "probability_"
Record = dict[str, Any]  # the values of a row by column


@dataclass(frozen=True)
class Table:
    """Rows to write: column names, the values of each row, and Arrow types by column if known."""

    names: list[str]
    records: list[Record]
    kinds: Mapping[str, Any]


Writer = Callable[[Path, Table], None]


@dataclass(frozen=True)
class FilePredictions:
    """The written file, its number of rows, and the number of predictions of each class."""

    out: str
    rows: int
    counts: dict[str, int]


def predict_file(
    predictor: Predictor,
    task: str,
    source: str,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> FilePredictions:
    """Predict every row of a file, which is held in memory, and write the rows in their order, whole or not at all.

    The output has the input's columns, then predicted_label and probability_CLASS for each class; for sts
    predicted_score. Rows of JSONL may have different keys: JSONL keeps them, and in CSV and Parquet every key is a
    column, empty where a row has none.

    Args:
        predictor: The model.
        task: One of its tasks.
        source: The input; "-" is standard input.
        out: A file *.csv, *.tsv, *.jsonl or *.parquet; not the input itself.
        columns: The columns of the texts, where they differ from those of the training.
        format: The input's format; by default its ending says which, and standard input is text.
        encoding: The input's, where it is text; UTF-8 without it. The output is UTF-8.
        delimiter: The input's, where it is CSV or TSV.
        overwrite: Replace the output where it exists.
        progress: Called with numbers of texts as they are embedded.
    """
    out = Path(out).expanduser()
    writer = checked_writer(source, out, overwrite=overwrite)
    with _as_file(source, format) as path:
        rows = _read(path, predictor.setup(task), columns, format=format, encoding=encoding, delimiter=delimiter)
    added = _added_names(predictor.labels[task])
    for name in added:
        if name in rows.names:
            raise InputError(f"{source}: has a column {name!r} already, which predictions are written to; rename it")
    predictions = predictor.predict(task, rows.texts, progress=progress)
    records = [
        record | dict(zip(added, values, strict=True))
        for record, values in zip(rows.records, _added_values(predictions), strict=True)
    ]
    _write(out, Table([*rows.names, *added], records, rows.kinds), writer)
    counts = {name: predictions.labels.count(name) for name in predictions.classes}
    return FilePredictions(str(out), len(records), counts)


def checked_writer(source: str, out: Path, *, overwrite: bool) -> Writer:
    """Return the writer for the output's suffix; raise early if the output cannot be written."""
    if out.suffix.lower() not in WRITERS:
        raise InputError(f"{out}: its ending {out.suffix!r} names no format; rename it to {', '.join(WRITERS)}")
    check_writable(out)
    if source != STDIN and Path(source).exists() and out.exists() and out.samefile(source):
        raise InputError(f"{out}: is the input itself, which would be lost; give another file with -o")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; give another name, or --overwrite")
    return WRITERS[out.suffix.lower()]


@dataclass(frozen=True)
class _Rows(Table):
    texts: list[Any]  # texts, or pairs of them


@contextmanager
def _as_file(source: str, format: str | None) -> Iterator[str]:
    """Yield the path of the input; a table from standard input is saved first, as it is read more than once."""
    if source != STDIN or format in (None, "text", "parquet"):
        yield source
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        with path.open("wb") as file:
            copyfileobj(sys.stdin.buffer, file)
        try:
            yield str(path)
        except LayerwiseError as error:
            raise type(error)(str(error).replace(str(path), "standard input")) from error


def _read(path: str, setup: TaskSetup, columns: Sequence[str], **reading: str | None) -> _Rows:
    declared = setup.task.text_columns
    columns_to_read = tuple(columns) or declared
    if len(columns_to_read) != len(declared):
        raise InputError(f"--columns names {len(columns_to_read)}; task {setup.name!r} takes {len(declared)}")
    source = RowSource.of(path, columns_to_read, **reading)
    try:
        numbered = list(_numbered(source))
    except MissingColumnError as error:
        raise MissingColumnError(f"{error}; say which hold the texts with --columns") from error
    if not numbered:
        raise InputError(f"{source.name}: no rows to predict; give a file with 1 or more")
    read = ("text",) if source.format == "text" else columns_to_read
    rows = [Row(number, tuple(record[name] for name in read)) for number, record in numbered]
    texts = [tuple(written_text_of(source, row, column) for column in range(len(read))) for row in rows]
    records = [record for _, record in numbered]
    names = list(dict.fromkeys(name for record in records for name in record))
    kinds = {name: column_type(source, name) for name in names} if source.format == "parquet" else {}
    return _Rows(names, records, kinds, texts if setup.task.is_pair else [text for (text,) in texts])


def _numbered(source: RowSource) -> Iterator[tuple[int, Record]]:
    """Whole rows with their numbers; `source` itself has only the columns of the texts."""
    if source.format == "text":
        yield from ((row.place, {"text": row.values[0]}) for row in source)
        return
    next(iter(source), None)  # the reader refuses a file that cannot be read or lacks these columns
    if source.format == "jsonl":
        records = (json.loads(text) for text in lines_of(source) if text.strip())
        for row, record in zip(source, records, strict=True):  # `source` comes first and refuses bad rows
            yield row.place, record
    else:
        header = _header(source)
        for row in replace(source, columns=header):
            yield row.place, dict(zip(header, row.values, strict=True))


def _header(source: RowSource) -> tuple[str, ...]:
    """Return the names of a table's columns; the reader raises for duplicates."""
    if source.format == "parquet":
        return tuple(str(name) for name in arrow_schema(source).names)
    return tuple(next(csv.reader(lines_of(source), delimiter=source.delimiter)))


def _added_names(classes: Sequence[str]) -> list[str]:
    return [LABEL, *(f"{PROBABILITY}{name}" for name in classes)] if classes else [SCORE]


def _added_values(predictions: Predictions) -> Iterator[tuple[Any, ...]]:
    """The values of each row, in the order of the names."""
    if not predictions.classes:
        return ((number,) for number in predictions.numbers.tolist())
    probabilities = predictions.probabilities.tolist()
    return ((label, *shares) for label, shares in zip(predictions.labels, probabilities, strict=True))


def _write(out: Path, table: Table, writer: Writer) -> None:
    with atomic_file(out) as building:
        try:
            writer(building, table)
        except UnicodeEncodeError as error:
            raise InputError(
                f"{out}: a value of the input holds half a surrogate pair, which is no text; correct it"
            ) from error


def _write_csv(path: Path, table: Table, delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table.names, restval="", delimiter=delimiter)
        writer.writeheader()
        writer.writerows(table.records)


def _write_jsonl(path: Path, table: Table) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in table.records:
            file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")  # dates and the like as texts


def _write_parquet(path: Path, table: Table) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        arrays = {
            name: pa.array([record.get(name) for record in table.records], type=table.kinds.get(name))
            for name in table.names
        }
        pq.write_table(pa.table(arrays), path)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the input's columns do not fit into Parquet: {reason}; write CSV or JSONL") from error


WRITERS: dict[str, Writer] = {
    ".csv": _write_csv,
    ".tsv": partial(_write_csv, delimiter="\t"),
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
