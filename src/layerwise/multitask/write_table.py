"""Rows as a file of CSV, TSV, JSONL or Parquet."""

import csv
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.errors import InputError

Record = dict[str, Any]  # a row: the values that it has, by column


@dataclass(frozen=True)
class Table:
    """All columns' names, each row's values, and Arrow types by column where they are known."""

    names: list[str]
    records: list[Record]
    kinds: Mapping[str, Any]


Writer = Callable[[Path, Table], None]


def write_whole(out: Path, table: Table, writer: Writer) -> None:
    """By the writer of its format: under another name, then renamed, so that it is there whole or not at all."""
    building = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writer(building, table)
        building.replace(out)
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error.strerror or error}; make room, or give another") from error
    except UnicodeEncodeError as error:
        raise InputError(
            f"{out}: a value of the input holds half a surrogate pair, which is no text; mend it"
        ) from error
    finally:
        building.unlink(missing_ok=True)


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
        raise InputError(f"the input's columns don't fit into Parquet: {reason}; write CSV or JSONL") from error


WRITERS: dict[str, Writer] = {
    ".csv": _write_csv,
    ".tsv": partial(_write_csv, delimiter="\t"),
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
