"""Converts rows of vectors for PostgreSQL: column types, values, and pgvector's binary format."""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from layerwise.embed import VectorBatch, VectorFiles
from layerwise.encoder import Array
from layerwise.errors import InputError

if TYPE_CHECKING:
    from psycopg import Connection

_LARGEST = float(np.finfo(np.float16).max)


def column_types(files: VectorFiles) -> dict[str, str]:
    """Return the PostgreSQL types of the row number and the carried columns."""
    table = next(iter(files.batches(rows=1, check=False))).table
    carried = {} if table is None else {field.name: _column_type(field.type) for field in table.schema}
    return {"row": "bigint"} | carried


def rows_of(files: VectorFiles, batch: VectorBatch, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows: the values of these columns, then the vector."""
    too_large = np.abs(batch.vectors).max(axis=1) > _LARGEST
    if too_large.any():
        row = batch.start + int(np.argmax(too_large))
        raise InputError(f"{files.place}: its row {row} has numbers too large for half precision")
    halves = batch.vectors.astype(">f2")
    records = [{}] * len(halves) if batch.table is None else batch.table.to_pylist()
    for row, (record, half) in enumerate(zip(records, halves, strict=True), start=batch.start):
        values = {"row": row} | record
        yield (*(_value(files, row, name, values[name], kind) for name, kind in columns.items()), _HalfVector(half))


def register_halfvec(connection: "Connection[Any]") -> None:
    """Register pgvector's binary format of halfvec on a connection: length, two zero bytes, values."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    info = TypeInfo.fetch(connection, "halfvec")
    if info is None:
        raise InputError("pgvector is older than 0.7, which has no halfvec; update the extension vector")
    info.register(connection)
    number = info.oid

    class HalfVectorDumper(Dumper):
        format = Format.BINARY
        oid = number

        def dump(self, obj: _HalfVector) -> bytes:
            return struct.pack(">hh", len(obj.numbers), 0) + obj.numbers.tobytes()

    connection.adapters.register_dumper(_HalfVector, HalfVectorDumper)


class _HalfVector:
    """A vector as big-endian half-precision numbers."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers


def _column_type(kind: Any) -> str:
    import pyarrow as pa

    known = (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "bigint"),
        (pa.types.is_floating, "double precision"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp" if getattr(kind, "tz", None) is None else "timestamptz"),
    )
    return next((name for matches, name in known if matches(kind)), "text")  # others are written as JSON


def _value(files: VectorFiles, row: int, name: str, value: Any, kind: str) -> Any:
    if kind != "text" or value is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if "\0" in text:
        raise InputError(
            f"{files.place}: its row {row}, column {name!r} holds a NUL character, which PostgreSQL cannot store; "
            f"remove it from the input and embed again"
        )
    return text
