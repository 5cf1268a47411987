"""Writes one shard file, and reads the fingerprint of its rows.

A Parquet shard stores it in its metadata, an NPY shard in its record (shard_records.py).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data import column_type
from layerwise.embed.bad_rows import BadRow
from layerwise.embed.job import Chunk, EmbedJob
from layerwise.embed.shard_records import ShardRecord, numbers_checksum
from layerwise.encoder import Array
from layerwise.errors import InputError, LayerwiseError
from layerwise.stores import Place, StorePath, open_array, readable

_ARROW_NAMES = {"float32": "float", "float16": "halffloat"}
_ROWS, _COUNT, _BAD_ROWS = b"layerwise.rows", b"layerwise.count", b"layerwise.bad-rows"  # in the metadata of a shard


def fingerprint_of(path: Place, job: EmbedJob) -> str | None:
    """Return the digest of a shard's input rows; None if the shard is damaged."""
    if path.suffix == ".npy":
        return _rows_of_npy(path, path.with_name(f"_{path.stem}.rows"))
    return _rows_of_parquet(path, job)


def bad_rows_of(path: Place) -> list[BadRow]:
    """Return the rows left out of a shard because their embeddings are not finite."""
    if path.suffix == ".npy":
        return []
    import pyarrow.parquet as pq

    text = (pq.read_schema(readable(path)).metadata or {}).get(_BAD_ROWS, b"[]")
    try:
        return [BadRow.parse(record) for record in json.loads(text)]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is damaged; delete it and run the same command again") from error


def rows_of_shard(path: Place) -> int:
    """Return the number of rows of a shard, reading only its header."""
    if path.suffix == ".npy":
        return len(open_array(path))
    import pyarrow.parquet as pq

    return int(pq.read_metadata(readable(path)).num_rows)


def write_parquet(
    path: Path, job: EmbedJob, chunk: Chunk, numbers: Array, finite: NDArray[np.bool_], bad: Sequence[BadRow]
) -> None:
    """Write a chunk's finite rows: their numbers, the carried columns and the vectors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"row": pa.array(chunk.rows, pa.int64())}
    for place, name in enumerate(job.source.columns[1:]):
        columns[name] = _carried_column(job, name, [values[place] for values in chunk.carried])
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])
    counted = {_ROWS: chunk.fingerprint, _COUNT: str(int(finite.sum()))}
    metadata = counted | ({_BAD_ROWS: json.dumps(list(map(asdict, bad)))} if bad else {})
    table = pa.table(columns).replace_schema_metadata(metadata)
    if bad:
        table = table.filter(pa.array(finite))
    # Embeddings do not compress and need no statistics; checksums reveal a damaged shard when a run is resumed.
    pq.write_table(
        table, path, compression="none", use_dictionary=False, write_page_checksum=True, write_statistics=["row"]
    )


def _carried_column(job: EmbedJob, name: str, values: list[Any]) -> Any:
    """Build a carried column; JSON values become text, as every shard must have the same type."""
    import pyarrow as pa

    if job.source.format == "parquet":
        return pa.array(values, column_type(job.source, name))
    return pa.array([v if isinstance(v, str) or v is None else json.dumps(v) for v in values], pa.string())


def _rows_of_parquet(path: Place, job: EmbedJob) -> str | None:
    """Return the fingerprint of a shard's input rows; None if the shard is damaged.

    Checksums cover only the pages, so the number of rows and the names and types of columns are compared too.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(readable(path), page_checksum_verification=True)
        names, types = table.column_names, table.schema.types
        metadata = table.schema.metadata or {}
        rows, count = metadata.get(_ROWS, b"").decode(), int(metadata.get(_COUNT, table.num_rows))
    except (pa.ArrowException, OSError, ValueError):  # ValueError includes invalid UTF-8
        return None
    if names != ["row", *job.source.columns[1:], "embedding"] or types[0] != pa.int64() or table.num_rows != count:
        return None
    if not pa.types.is_fixed_size_list(types[-1]) or str(types[-1].value_type) != _ARROW_NAMES[job.number_type]:
        return None
    return rows or None


def _rows_of_npy(path: Place, sidecar: Place) -> str | None:
    """Like `_rows_of_parquet`, for an array, whose fingerprint and checksum are in its record."""
    try:
        record = ShardRecord.parse(sidecar.read_text())
        is_intact = record is not None and record.numbers == numbers_checksum(loaded_numbers(path))
    except LayerwiseError:  # raised by an object store
        raise
    except (OSError, ValueError, EOFError):
        return None
    return record.fingerprint if record is not None and is_intact else None


def loaded_numbers(path: Place) -> Array:
    """Load an NPY shard into memory."""
    if isinstance(path, StorePath):
        return np.asarray(open_array(path))
    array: Array = np.load(path, allow_pickle=False)
    return array
