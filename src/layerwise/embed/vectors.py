"""Reads the output of `layerwise embed`: a folder of shards with its manifest, or one file joined from them.

Vectors are read in batches, so that memory does not grow with their number. Files are untrusted: a damaged one, or one
of another width, raises a one-line error that names it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.embed.joining import EMBEDDED
from layerwise.embed.record_paths import resolved
from layerwise.embed.shards import MANIFEST
from layerwise.encoder import Array
from layerwise.errors import InputError, LayerwiseError
from layerwise.files import read_json
from layerwise.stores import Place, StorePath, open_array, place_of, readable

BATCH_ROWS = 16_384
_REMEDY = "write it with `layerwise embed`"


@dataclass(frozen=True)
class VectorBatch:
    """Some rows: the position of the first, vectors (rows, width), and the carried columns as a pyarrow table.

    Without carried columns (NPY), `table` is None. The column `row` there is a row's number in the embedded input.
    """

    start: int
    vectors: Array
    table: Any = None


@dataclass(frozen=True)
class VectorFiles:
    """Vectors on disk or in an object store.

    `settings` is the manifest: how they were made; empty if there is none (one NPY file).
    """

    place: Place
    parts: tuple[Place, ...]
    part_rows: tuple[int, ...]
    width: int
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str | Path | StorePath, *, unfinished: bool = False) -> "VectorFiles":
        """Open a folder of shards, or one *.parquet or *.npy file, by path or URL.

        Raises for a folder whose run is not finished unless `unfinished`.
        """
        place = place_of(path).expanduser()
        parts = sorted(place.glob("part-*"), key=_name) if place.is_dir() else [place]
        parts = [part for part in parts if part.suffix in (".parquet", ".npy") and part.is_file()]
        if not place.exists():
            raise InputError(f"{place}: no such file or folder; {_REMEDY}")
        if not parts:
            raise InputError(f"{place}: holds no vectors (*.parquet or *.npy); {_REMEDY}")
        shapes = [_shape(part) for part in parts]
        for part, (_, width) in zip(parts, shapes, strict=True):
            if width != shapes[0][1]:
                raise InputError(
                    f"{part}: has vectors of {width} numbers, {parts[0].name} of {shapes[0][1]}; {_REMEDY}"
                )
        settings = _settings(place)
        if settings.get("finished") is False and not unfinished:
            raise InputError(f"{place}: its run has not ended; run the same `layerwise embed` again, which resumes it")
        recorded = settings.get("shards")
        missing = sorted(set(recorded) - {part.name for part in parts}) if isinstance(recorded, dict) else []
        if missing and not unfinished:
            raise InputError(f"{place / missing[0]}: is missing; run the same `layerwise embed` again, which writes it")
        return cls(place, tuple(parts), tuple(rows for rows, _ in shapes), shapes[0][1], settings)

    @property
    def rows(self) -> int:
        """The number of vectors."""
        return sum(self.part_rows)

    @property
    def columns(self) -> list[str]:
        """The names of the carried columns, including `row`; empty for arrays."""
        if self.parts[0].suffix == ".npy":
            return []
        return [name for name in _parquet_file(self.parts[0]).schema_arrow.names if name != "embedding"]

    def row_numbers(self) -> NDArray[np.int64]:
        """Return each vector's row number in the input; for arrays, its position."""
        if "row" not in self.columns:
            return np.arange(self.rows)
        return np.concatenate([np.asarray(_parquet_file(part).read(columns=["row"])["row"]) for part in self.parts])

    def batches(self, *, rows: int = BATCH_ROWS, start: int = 0, check: bool = True) -> Iterator[VectorBatch]:
        """Iterate over the vectors as float32, from the row `start`; `check` raises for non-finite values."""
        first = 0
        for part, count in zip(self.parts, self.part_rows, strict=True):
            if first + count > start:
                position = first
                for vectors, table in (_npy_batches if part.suffix == ".npy" else _parquet_batches)(part, rows):
                    _check_width(part, vectors, self.width)
                    if check:
                        _check_finite(part, vectors, position - first)
                    skip = max(0, start - position)
                    if skip < len(vectors):
                        yield VectorBatch(position + skip, vectors[skip:], None if table is None else table.slice(skip))
                    position += len(vectors)
            first += count

    def read(self, *, check: bool = True) -> tuple[Array, Any]:
        """Read all vectors, and the table of carried columns (None for arrays)."""
        import pyarrow as pa

        vectors = np.empty((self.rows, self.width), dtype=np.float32)
        tables = []
        for batch in self.batches(check=check):
            vectors[batch.start : batch.start + len(batch.vectors)] = batch.vectors
            tables += [] if batch.table is None else [batch.table]
        return vectors, pa.concat_tables(tables) if tables else None

    def take(self, rows: Any) -> list[dict[str, Any]]:
        """Return the carried columns of rows, given by their positions in rising order."""
        wanted, records = np.asarray(rows), []
        for batch in self.batches() if self.columns else ():
            indices = wanted[(wanted >= batch.start) & (wanted < batch.start + len(batch.vectors))] - batch.start
            if len(indices):
                records += batch.table.take(indices).to_pylist()
        return records or [{} for _ in wanted]


def _settings(place: Place) -> dict[str, Any]:
    if place.is_dir():
        manifest = place / MANIFEST
        return resolved(read_json(manifest, remedy=_REMEDY), place) if manifest.is_file() else {}
    if place.suffix == ".npy":
        return {}
    text = (_parquet_file(place).schema_arrow.metadata or {}).get(EMBEDDED)
    try:
        settings = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: the record of how it was made is not JSON: {error}; {_REMEDY}") from error
    if not isinstance(settings, dict):
        raise InputError(f"{place}: the record of how it was made is not a JSON object; {_REMEDY}")
    return resolved(settings, place.parent)


def _shape(part: Place) -> tuple[int, int]:
    """Return the number of rows and the width of a file."""
    if part.suffix == ".npy":
        shape = _npy(part).shape
        if len(shape) != 2 or not shape[1]:
            raise InputError(f"{part}: has the shape {shape}, expected (rows, width); {_REMEDY}")
        return int(shape[0]), int(shape[1])
    import pyarrow as pa

    file = _parquet_file(part)
    schema = file.schema_arrow
    if "embedding" not in schema.names:
        raise InputError(f"{part}: has no column embedding; {_REMEDY}")
    kind = schema.field("embedding").type
    width = kind.list_size if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type) else 0
    if not width:
        raise InputError(f"{part}: the column embedding is {kind}, not lists of one length; {_REMEDY}")
    return int(file.metadata.num_rows), int(width)


def _npy(part: Place) -> Any:
    try:
        array = open_array(part)
    except LayerwiseError:  # raised by an object store
        raise
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(f"{part}: is damaged: {error}; {_REMEDY}") from error
    if array.dtype.kind != "f":
        raise InputError(f"{part}: holds {array.dtype}, expected float32 or float16; {_REMEDY}")
    return array


def _npy_batches(part: Place, rows: int) -> Iterator[tuple[Array, Any]]:
    array = _npy(part)
    for start in range(0, len(array), rows):
        yield np.asarray(array[start : start + rows], dtype=np.float32), None


def _parquet_file(part: Place) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(readable(part), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part}: is damaged: {_first_line(error)}; {_REMEDY}") from error


def _parquet_batches(part: Place, rows: int) -> Iterator[tuple[Array, Any]]:
    import pyarrow as pa

    try:
        for batch in _parquet_file(part).iter_batches(batch_size=rows):
            column = batch.column("embedding")
            if column.null_count:
                raise InputError(f"{part}: {column.null_count} rows have no embedding; {_REMEDY}")
            numbers = column.flatten().to_numpy(zero_copy_only=False)
            table = pa.table(batch).drop_columns(["embedding"]).replace_schema_metadata(None)
            yield np.ascontiguousarray(numbers, dtype=np.float32).reshape(len(batch), -1), table
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part}: is damaged: {_first_line(error)}; {_REMEDY}") from error


def _check_width(part: Place, vectors: Array, width: int) -> None:
    if len(vectors) and vectors.shape[1] != width:
        raise InputError(f"{part}: has vectors of {vectors.shape[1]} numbers, expected {width}; {_REMEDY}")


def _check_finite(part: Place, vectors: Array, start: int) -> None:
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = start + int(np.argmin(finite))
        raise InputError(
            f"{part}: its row {row} holds NaN or infinity; see `layerwise embed --verify`, then embed again"
        )


def _name(path: Place) -> str:
    return path.name


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
