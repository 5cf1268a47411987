"""A file's rows with their predictions beside them: text, CSV, TSV, JSONL or Parquet in; CSV, JSONL or Parquet out."""

import csv
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.data.rows import STDIN, Row, RowSource, column_type, text_of
from layerwise.errors import InputError, MissingColumnError
from layerwise.multitask.labels import listed
from layerwise.multitask.predictor import Predictions, Predictor
from layerwise.multitask.task import TaskSettings

Column = tuple[str, list[Any], Any]  # name, values, and the Arrow type where it is known
LABEL, SCORE, PROBABILITY = "predicted_label", "predicted_score", "probability_"


@dataclass(frozen=True)
class FilePredictions:
    """What was written: the rows' number, and of each class how many rows it was predicted for."""

    out: str
    rows: int
    counts: dict[str, int]


def predict_file(
    predictor: Predictor, task: str, source: str, out: str | os.PathLike[str], *, columns: Sequence[str] = ()
) -> FilePredictions:
    """Predict every row of a file, which is held in memory, and write the rows in their order, whole or not at all.

    The output has the input's columns, then predicted_label and probability_CLASS for each class; for similarity
    predicted_score.

    Args:
        predictor: The model.
        task: One of its tasks.
        source: The input; its format is known by its ending. "-" is text from standard input.
        out: A file *.csv, *.jsonl or *.parquet.
        columns: Those of the texts, where they are called otherwise than in training.
    """
    out = Path(out).expanduser()
    writer = writer_of(out)
    rows = _read(source, predictor.task(task), columns)
    found = predictor.predict(task, rows.texts)
    new = _new_columns(found)
    for name, _, _ in new:
        if name in {own for own, _, _ in rows.columns}:
            raise InputError(f"{source}: has a column {name!r} already, which predictions are written to; rename it")
    _write(out, [*rows.columns, *new], writer)
    return FilePredictions(str(out), len(rows.texts), {name: found.labels.count(name) for name in found.classes})


def writer_of(out: Path) -> "Writer":
    """By the file's ending; an error before any work is done."""
    if out.suffix.lower() not in _WRITERS:
        raise InputError(f"{out}: its ending {out.suffix!r} tells no format; name it {', '.join(_WRITERS)}")
    if out.is_dir():
        raise InputError(f"{out}: is a folder; give a file")
    return _WRITERS[out.suffix.lower()]


@dataclass(frozen=True)
class _Rows:
    columns: list[Column]
    texts: list[Any]  # texts, or pairs of them


def _read(path: str, task: TaskSettings, columns: Sequence[str]) -> _Rows:
    wanted = tuple(columns) or task.columns
    if len(wanted) != len(task.columns):
        raise InputError(f"--columns names {len(wanted)}; task {task.name!r} takes {len(task.columns)}")
    source = RowSource.of(path, wanted)
    header = _header(source)
    nothing = InputError(f"{source.name}: no rows to predict; give a file with 1 or more")
    if not header:
        raise nothing
    for name in wanted:
        if name not in header and source.format != "text":
            raise MissingColumnError(
                f"{source.name}: no column {name!r}; it has {listed(header)}; say which hold the texts with --columns"
            )
    whole = RowSource.of(path, header)
    rows = list(whole)
    if not rows:
        raise nothing
    places = [0] if source.format == "text" else [header.index(name) for name in wanted]
    texts = [tuple(_text(whole, row, place) for place in places) for row in rows]
    kinds = [column_type(whole, name) if source.format == "parquet" else None for name in header]
    values = [list(column) for column in zip(*(row.values for row in rows), strict=True)]
    return _Rows(
        list(zip(header, values, kinds, strict=True)), list(texts) if task.is_pair else [text for (text,) in texts]
    )


def _header(source: RowSource) -> list[str]:
    """The names of a file's columns; of JSONL those of its first row."""
    if source.format == "text" or source.path == STDIN:
        return ["text"]
    if source.format == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return [str(name) for name in pq.read_schema(source.path).names]
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{source.name}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
    return _first_names(source)


def _first_names(source: RowSource) -> list[str]:
    """Of CSV, TSV and JSONL; what can't be read is told by the reader itself, with its row."""
    next(islice(RowSource(source.path, source.format, ()), 1), None)
    with Path(source.path).open(encoding="utf-8-sig", newline="") as lines:
        if source.format == "jsonl":
            first = next((line for line in lines if line.strip()), "{}")
            return list(json.loads(first))
        return next(csv.reader(lines, delimiter="\t" if source.format == "tsv" else ","))


def _text(source: RowSource, row: Row, place: int) -> str:
    text = text_of(source, row, place)
    if not text.strip():
        raise source.fail(row.place, f"column {source.columns[place]!r} is empty; give a text, or drop the row")
    return text


def _new_columns(found: Predictions) -> list[Column]:
    if not found.classes:
        return [(SCORE, found.numbers.tolist(), None)]
    shares = [
        (f"{PROBABILITY}{name}", found.probabilities[:, number].tolist(), None)
        for number, name in enumerate(found.classes)
    ]
    return [(LABEL, list(found.labels), None), *shares]


Writer = Callable[[Path, Sequence[Column]], None]


def _write(out: Path, columns: Sequence[Column], writer: Writer) -> None:
    """Under another name, then renamed."""
    building = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writer(building, columns)
        building.replace(out)
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error.strerror or error}; make room, or give another") from error
    finally:
        building.unlink(missing_ok=True)


def _write_csv(path: Path, columns: Sequence[Column]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name for name, _, _ in columns])
        writer.writerows(zip(*(values for _, values, _ in columns), strict=True))


def _write_jsonl(path: Path, columns: Sequence[Column]) -> None:
    names = [name for name, _, _ in columns]
    with path.open("w", encoding="utf-8") as file:
        for values in zip(*(values for _, values, _ in columns), strict=True):
            row = dict(zip(names, values, strict=True))
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")  # dates and the like as texts


def _write_parquet(path: Path, columns: Sequence[Column]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        arrays = {name: pa.array(values, type=kind) for name, values, kind in columns}
        pq.write_table(pa.table(arrays), path)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the input's columns don't fit into Parquet: {reason}; write CSV or JSONL") from error


_WRITERS: dict[str, Writer] = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
