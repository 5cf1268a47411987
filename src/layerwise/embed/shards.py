"""The output: a folder of shards and a manifest. A shard is whole or not there; a run goes on where one stopped."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from layerwise.data.rows import column_type
from layerwise.embed.job import Chunk, EmbedJob
from layerwise.encoder.stream import Array
from layerwise.errors import InputError

_MANIFEST = "_embed.json"  # readers of a Parquet folder pass over names that begin with _ or .
_LOCK = ".lock"


class ShardFolder:
    """The shards of one job."""

    def __init__(self, folder: Path, job: EmbedJob) -> None:
        self.folder = folder
        self.job = job

    @contextmanager
    def opened(self, settings: dict[str, Any], *, overwrite: bool) -> Iterator[None]:
        """Take the folder for this job alone: made, emptied if `overwrite`, or continued if it is of the same job."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / _LOCK, timeout=0)
            with lock:
                self._prepare(settings, overwrite)
                yield
        except Timeout as error:
            raise InputError(f"{self.folder}: another run is writing there; wait for it or stop it") from error
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(
                f"{self.folder}: is a file; give a folder, or a name ending in .parquet or .npy"
            ) from error

    def path(self, number: int) -> Path:
        """Where a shard lies."""
        return self.folder / f"part-{number:06d}.{self.job.format}"

    def has(self, chunk: Chunk) -> bool:
        """Whether a chunk's shard is written; one made of other rows is an error, not a reason to mix the two."""
        if not self.path(chunk.number).is_file():
            return False
        if self._fingerprint(chunk.number) == chunk.fingerprint:
            return True
        raise InputError(
            f"{self.path(chunk.number)}: was made of other rows than the input has now; "
            f"give the same input, another output, or --overwrite"
        )

    def write(self, chunk: Chunk, embeddings: Array) -> None:
        """Write a chunk's shard under another name, then give it its own."""
        path = self.path(chunk.number)
        building = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            if self.job.format == "npy":
                _write_npy(building, embeddings.astype(self.job.number_type))
                _write_bytes(self._sidecar(chunk.number), chunk.fingerprint.encode())
            else:
                _write_parquet(building, self.job, chunk, embeddings)
            building.replace(path)
        except OSError as error:
            building.unlink(missing_ok=True)
            raise InputError(
                f"{path}: can't be written: {error.strerror or error}; what was written before is kept: "
                f"make room and run the same command again"
            ) from error

    def finish(self, shards: int) -> None:
        """Remove shards beyond the last, which an earlier and longer input left."""
        number = shards
        while self.path(number).exists():
            self.path(number).unlink()
            self._sidecar(number).unlink(missing_ok=True)
            number += 1

    def _prepare(self, settings: dict[str, Any], overwrite: bool) -> None:
        manifest = self.folder / _MANIFEST
        found = [path for path in self.folder.iterdir() if path.name != _LOCK]
        if found and not manifest.is_file():
            raise InputError(f"{self.folder}: holds other files, e.g. {found[0].name}; give an empty or new folder")
        if found and not overwrite:
            _check_same(self.folder, json.loads(manifest.read_text(encoding="utf-8")), settings)
        for path in found:
            if overwrite or path.name.startswith(".part-"):
                path.unlink()
        _write_bytes(manifest, json.dumps(settings, indent=1).encode())

    def _fingerprint(self, number: int) -> str | None:
        if self.job.format == "npy":
            sidecar = self._sidecar(number)
            return sidecar.read_text() if sidecar.is_file() else None
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(self.path(number)).metadata or {}
        except pa.ArrowException:
            return None
        return metadata.get(b"layerwise.rows", b"").decode() or None

    def _sidecar(self, number: int) -> Path:
        return self.path(number).with_name(f"_part-{number:06d}.rows")


def _check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    differing = [key for key in now if before.get(key) != now[key]]
    if differing:
        key = differing[0]
        raise InputError(
            f"{folder}: was begun with {key} = {before.get(key)!r}, now it is {now[key]!r}; "
            f"give the same settings, another output, or --overwrite"
        )


def _write_npy(path: Path, embeddings: Array) -> None:
    with path.open("wb") as file:
        np.save(file, embeddings, allow_pickle=False)
        _to_disk(file.fileno(), file)


def _write_bytes(path: Path, data: bytes) -> None:
    building = path.with_name(f".{path.name}.{os.getpid()}")
    with building.open("wb") as file:
        file.write(data)
        _to_disk(file.fileno(), file)
    building.replace(path)


def _write_parquet(path: Path, job: EmbedJob, chunk: Chunk, embeddings: Array) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = embeddings.astype(job.number_type)
    columns: dict[str, Any] = {"row": pa.array(chunk.rows, pa.int64())}
    for place, name in enumerate(job.source.columns[1:]):
        columns[name] = _kept_column(job, name, [values[place] for values in chunk.kept])
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])
    table = pa.table(columns).replace_schema_metadata({"layerwise.rows": chunk.fingerprint})
    with path.open("wb") as file:
        pq.write_table(table, file, compression="none", use_dictionary=False)  # embeddings do not compress
        _to_disk(file.fileno(), file)


def _kept_column(job: EmbedJob, name: str, values: list[Any]) -> Any:
    """A carried column; JSON's loose types become text, for every shard must have the same type."""
    import pyarrow as pa

    if job.source.format == "parquet":
        return pa.array(values, column_type(job.source, name))
    return pa.array([v if isinstance(v, str) or v is None else json.dumps(v) for v in values], pa.string())


def _to_disk(number: int, file: Any) -> None:
    file.flush()
    os.fsync(number)
