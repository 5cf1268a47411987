"""A file's rows with their predictions beside them: text, CSV, TSV, JSONL or Parquet, in and (but text) out."""

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

from layerwise.data.rows import STDIN, Row, RowSource, column_type, written_text_of
from layerwise.errors import InputError, LayerwiseError, MissingColumnError
from layerwise.multitask.predictor import Predictions, Predictor
from layerwise.multitask.task import TaskSettings
from layerwise.multitask.write_table import WRITERS, Record, Table, Writer, write_whole

LABEL, SCORE, PROBABILITY = "predicted_label", "predicted_score", "probability_"


@dataclass(frozen=True)
class FilePredictions:
    """What was written: the rows' number, and of each class how many rows it was predicted for."""

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
) -> FilePredictions:
    """Predict every row of a file, which is held in memory, and write the rows in their order, whole or not at all.

    The output has the input's columns, then predicted_label and probability_CLASS for each class; for similarity
    predicted_score. Rows of JSONL may each have other keys: JSONL keeps them so; in CSV and Parquet every key is a
    column, empty where a row has none.

    Args:
        predictor: The model.
        task: One of its tasks.
        source: The input; "-" is standard input.
        out: A file *.csv, *.tsv, *.jsonl or *.parquet; not the input itself.
        columns: Those of the texts, where they are called otherwise than in training.
        format: The input's; without it, by its ending, and text from standard input.
    """
    out = Path(out).expanduser()
    writer = checked_writer(source, out)
    with _at_hand(source, format) as path:
        rows = _read(path, predictor.task(task), columns, format)
    added = _added_names(predictor.labels[task])
    for name in added:
        if name in rows.names:
            raise InputError(f"{source}: has a column {name!r} already, which predictions are written to; rename it")
    found = predictor.predict(task, rows.texts)
    records = [
        record | dict(zip(added, values, strict=True))
        for record, values in zip(rows.records, _added_values(found), strict=True)
    ]
    write_whole(out, Table([*rows.names, *added], records, rows.kinds), writer)
    return FilePredictions(str(out), len(records), {name: found.labels.count(name) for name in found.classes})


def checked_writer(source: str, out: Path) -> Writer:
    """By the output's ending; an error before any work is done, so that nothing that is there is lost."""
    if out.suffix.lower() not in WRITERS:
        raise InputError(f"{out}: its ending {out.suffix!r} tells no format; name it {', '.join(WRITERS)}")
    if out.is_dir():
        raise InputError(f"{out}: is a folder; give a file")
    if source != STDIN and Path(source).exists() and out.exists() and out.samefile(source):
        raise InputError(f"{out}: is the input itself, which would be lost; give another file with -o")
    return WRITERS[out.suffix.lower()]


@dataclass(frozen=True)
class _Rows(Table):
    texts: list[Any]  # texts, or pairs of them


@contextmanager
def _at_hand(source: str, format: str | None) -> Iterator[str]:
    """A file's path; a table from standard input is written to a file first, for it is read more than once."""
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


def _read(path: str, task: TaskSettings, columns: Sequence[str], format: str | None) -> _Rows:
    wanted = tuple(columns) or task.columns
    if len(wanted) != len(task.columns):
        raise InputError(f"--columns names {len(wanted)}; task {task.name!r} takes {len(task.columns)}")
    source = RowSource.of(path, wanted, format=format)
    try:
        placed = list(_placed(source))
    except MissingColumnError as error:
        raise MissingColumnError(f"{error}; say which hold the texts with --columns") from error
    if not placed:
        raise InputError(f"{source.name}: no rows to predict; give a file with 1 or more")
    own = ("text",) if source.format == "text" else wanted
    rows = [Row(place, tuple(record[name] for name in own)) for place, record in placed]
    texts = [tuple(written_text_of(source, row, column) for column in range(len(own))) for row in rows]
    records = [record for _, record in placed]
    names = list(dict.fromkeys(name for record in records for name in record))
    kinds = {name: column_type(source, name) for name in names} if source.format == "parquet" else {}
    return _Rows(names, records, kinds, texts if task.is_pair else [text for (text,) in texts])


def _placed(source: RowSource) -> Iterator[tuple[int, Record]]:
    """Whole rows and where they stand; `source` itself has only the columns of the texts."""
    if source.format == "text":
        yield from ((row.place, {"text": row.values[0]}) for row in source)
        return
    next(iter(source), None)  # a file that can't be read, or has not these columns, is told by the reader
    if source.format == "jsonl":
        with Path(source.path).open("rb") as lines:
            texts = (line.decode("utf-8-sig") for line in lines)
            records = (json.loads(text) for text in texts if text.strip())
            for row, record in zip(source, records, strict=True):  # so is a row, as `source` comes first
                yield row.place, record
    else:
        header = _header(source)
        for row in RowSource(source.path, source.format, header):
            yield row.place, dict(zip(header, row.values, strict=True))


def _header(source: RowSource) -> tuple[str, ...]:
    """The names of a table's columns; the reader refuses two of one name, of which one would be lost."""
    if source.format == "parquet":
        import pyarrow.parquet as pq

        return tuple(str(name) for name in pq.read_schema(source.path).names)
    with Path(source.path).open(encoding="utf-8-sig", newline="") as lines:
        return tuple(next(csv.reader(lines, delimiter="\t" if source.format == "tsv" else ",")))


def _added_names(classes: Sequence[str]) -> list[str]:
    return [LABEL, *(f"{PROBABILITY}{name}" for name in classes)] if classes else [SCORE]


def _added_values(found: Predictions) -> Iterator[tuple[Any, ...]]:
    """Row by row, in the order of the names."""
    if not found.classes:
        return ((number,) for number in found.numbers.tolist())
    shares = found.probabilities.tolist()
    return ((label, *own) for label, own in zip(found.labels, shares, strict=True))
