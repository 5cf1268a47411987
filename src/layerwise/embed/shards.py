"""The output: a folder of shards and a manifest. A shard is whole or not there; a run goes on where one stopped.

Files are built under a name that begins with a dot and renamed when they are on the disk. Readers of a Parquet folder
pass over names that begin with a dot or an underscore, so the folder reads as one table at any moment.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout

from layerwise.data.rows import column_type
from layerwise.embed.job import Chunk, EmbedJob
from layerwise.encoder.stream import Array
from layerwise.errors import InputError

_MANIFEST = "_embed.json"
_LOCK = ".lock"
_SHARD = re.compile(r"part-\d{6}\.(parquet|npy)")
_BESIDE = re.compile(r"_part-\d{6}\.rows")
_UNFINISHED = re.compile(r"\.(part-\d{6}\.(parquet|npy)|_part-\d{6}\.rows|_embed\.json)\.\d+")


class ShardFolder:
    """The shards of one job."""

    def __init__(self, folder: Path, job: EmbedJob) -> None:
        self.folder = folder
        self.job = job

    @contextmanager
    def opened(self, settings: dict[str, Any], *, overwrite: bool) -> Iterator[None]:
        """Take the folder for this job alone: made, emptied if `overwrite`, or continued if it is of the same job."""
        lock = FileLock(self.folder / _LOCK, timeout=0)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            self._prepare(settings, overwrite)
        except Timeout as error:
            raise InputError(f"{self.folder}: another run is writing there; wait for it or stop it") from error
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(
                f"{self.folder}: is a file; give a folder, or a name ending in .parquet or .npy"
            ) from error
        except OSError as error:
            raise InputError(f"{self.folder}: can't be written to: {error.strerror or error}") from error
        else:
            yield
        finally:
            lock.release()

    def path(self, number: int) -> Path:
        """Where a shard lies."""
        return self.folder / f"part-{number:06d}.{self.job.format}"

    def has(self, chunk: Chunk) -> bool:
        """Whether a chunk's shard is written. One that is damaged, or of other rows, is an error: nothing is mixed."""
        path = self.path(chunk.number)
        if not path.is_file():
            return False
        recorded = _rows_of_npy(path, self._sidecar(chunk.number)) if path.suffix == ".npy" else _rows_of_parquet(path)
        if recorded is None:
            raise InputError(f"{path}: is damaged; delete it and run the same command again, or pass --overwrite")
        if recorded != chunk.fingerprint:
            raise InputError(
                f"{path}: was made of other rows than the input has now; "
                f"give the same input, another output, or --overwrite"
            )
        return True

    def write(self, chunk: Chunk, embeddings: Array) -> None:
        """Write a chunk's shard, whole or not at all."""
        path, numbers = self.path(chunk.number), embeddings.astype(self.job.number_type)
        try:
            if path.suffix == ".npy":
                record = f"{chunk.fingerprint} {_npy_checksum(numbers)}"
                _write(self._sidecar(chunk.number), lambda file: file.write(record.encode()))
                _write(path, lambda file: np.save(file, numbers, allow_pickle=False))
            else:
                _write(path, lambda file: _write_parquet(file, self.job, chunk, numbers))
        except OSError as error:
            raise InputError(
                f"{path}: can't be written: {error.strerror or error}; what was written before is kept: "
                f"make room and run the same command again"
            ) from error

    def check_end(self, shards: int) -> None:
        """Refuse an input that ends before the shards do: it may be a pipe that broke, so nothing is removed."""
        if self.path(shards).exists():
            raise InputError(
                f"{self.path(shards)}: was made of rows beyond the end of the input; "
                f"give the same input, another output, or --overwrite"
            )

    def _prepare(self, settings: dict[str, Any], overwrite: bool) -> None:
        manifest = self.folder / _MANIFEST
        names = sorted(path.name for path in self.folder.iterdir() if path.name != _LOCK)
        unfinished = [name for name in names if _UNFINISHED.fullmatch(name)]
        if set(names) - set(unfinished) and not manifest.is_file():
            other = next(name for name in names if name not in unfinished)
            raise InputError(f"{self.folder}: holds other files, e.g. {other}; give an empty or new folder")
        shards = [name for name in names if _SHARD.fullmatch(name)]
        if shards and not overwrite:
            _check_same(manifest, settings)
        beside = [name for name in names if _BESIDE.fullmatch(name)]
        for name in unfinished + (shards + beside if overwrite else []):
            (self.folder / name).unlink()
        _write(manifest, lambda file: file.write(json.dumps(settings, indent=1).encode()))

    def _sidecar(self, number: int) -> Path:
        return self.folder / f"_part-{number:06d}.rows"


def _check_same(manifest: Path, now: dict[str, Any]) -> None:
    try:
        before = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    if not isinstance(before, dict):
        raise InputError(f"{manifest}: is missing or damaged; give another output, or --overwrite")
    for key in now:
        if before.get(key) != now[key]:
            if key == "model":
                raise InputError(
                    f"{manifest.parent}: was begun with another model; give that one, another output, or --overwrite"
                )
            raise InputError(
                f"{manifest.parent}: was begun with {key} = {before.get(key)!r}, now it is {now[key]!r}; "
                f"give the same settings, another output, or --overwrite"
            )


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Let `fill` write a file under another name; give it its own when it is on the disk."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with building.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        building.replace(path)
    finally:
        building.unlink(missing_ok=True)


def _write_parquet(file: BinaryIO, job: EmbedJob, chunk: Chunk, numbers: Array) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"row": pa.array(chunk.rows, pa.int64())}
    for place, name in enumerate(job.source.columns[1:]):
        columns[name] = _kept_column(job, name, [values[place] for values in chunk.kept])
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])
    table = pa.table(columns).replace_schema_metadata({"layerwise.rows": chunk.fingerprint})
    # Embeddings do not compress; checksums tell a damaged shard when a run goes on.
    pq.write_table(table, file, compression="none", use_dictionary=False, write_page_checksum=True)


def _kept_column(job: EmbedJob, name: str, values: list[Any]) -> Any:
    """A carried column; JSON's loose types become text, for every shard must have the same type."""
    import pyarrow as pa

    if job.source.format == "parquet":
        return pa.array(values, column_type(job.source, name))
    return pa.array([v if isinstance(v, str) or v is None else json.dumps(v) for v in values], pa.string())


def _rows_of_parquet(path: Path) -> str | None:
    """The fingerprint of the rows that a shard was made of; None where it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return None
    return (table.schema.metadata or {}).get(b"layerwise.rows", b"").decode() or None


def _rows_of_npy(path: Path, sidecar: Path) -> str | None:
    """The same of a plain array, whose rows' fingerprint and checksum stand beside it."""
    try:
        rows, checksum = sidecar.read_text().split()
        same = int(checksum) == _npy_checksum(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None
    return rows if same else None


def _npy_checksum(numbers: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(numbers).data.cast("B"), zlib.crc32(repr(numbers.shape).encode()))
