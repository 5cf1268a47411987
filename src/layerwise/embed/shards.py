"""The output: a folder of shards and a manifest, or one file joined from them.

A shard is whole or not there, so that a stopped run can be resumed. Readers of a Parquet folder ignore names that begin
with a dot (unfinished files) or an underscore, so the folder reads as one table at any moment.
"""

import json
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from layerwise.data import column_type
from layerwise.digests import file_sha256
from layerwise.embed.bad_rows import BadRow
from layerwise.embed.job import Chunk, EmbedJob
from layerwise.embed.record_paths import portable, resolved
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.files import atomic_file, new_mapped_array, read_json, write_json, write_text

MANIFEST = "_embed.json"
EMBEDDED = b"layerwise.embed"  # the manifest, in the metadata of one Parquet file
_ROWS, _BAD_ROWS = b"layerwise.rows", b"layerwise.bad-rows"  # in the metadata of a shard
_LOCK, _RUN = ".lock", ".run"
_SHARD = re.compile(r"part-\d{6}\.(parquet|npy)")
_SIDECAR = re.compile(r"_part-\d{6}\.rows")
_UNFINISHED = re.compile(r"\.(_?part-\d{6}|_embed)\.\d+\.(parquet|npy|rows|json)")  # names of `atomic_file`
_REMEDY = "free some space and run the same command again"


class ShardFolder:
    """The shards of one job. With `run`, only that run may write: see `claimed`."""

    def __init__(self, folder: Path, job: EmbedJob, run: str | None = None) -> None:
        self.folder = folder
        self.job = job
        self.run = run

    @contextmanager
    def opened(
        self, settings: dict[str, Any], *, overwrite: bool, facts: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Lock the folder for this job: created, emptied if `overwrite`, or resumed if it is of the same job.

        `facts` are written into the manifest too, and may change between runs of the same job. A run that fails before
        its first shard leaves nothing behind.
        """
        lock, is_new = FileLock(self.folder / _LOCK, timeout=0), not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            self._prepare(settings, facts or {}, overwrite)
        except Timeout as error:
            raise InputError(f"{self.folder}: another run is writing there; wait for it or stop it") from error
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(
                f"{self.folder}: is a file; give a folder, or a name ending in .parquet or .npy"
            ) from error
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be written to: {error.strerror or error}") from error
        else:
            yield
        finally:
            if lock.is_locked:
                self._leave_nothing(is_new)
            lock.release()

    @contextmanager
    def claimed(self) -> Iterator["ShardFolder"]:
        """The folder for workers on other machines, which cannot hold its lock.

        They know it by a name that this run writes into it. So a folder that only has the same path on their machine is
        refused, and a worker that outlives its run writes nothing into the folder of the next. At the end, what killed
        workers have left unfinished is removed.
        """
        mark, run = self.folder / _RUN, secrets.token_hex(16)
        write_text(mark, run)
        try:
            yield ShardFolder(self.folder.absolute(), self.job, run)
        finally:
            mark.unlink(missing_ok=True)
            for path in self.folder.glob(".*"):
                if _UNFINISHED.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def check_run(self) -> None:
        """Refuse a folder that is not claimed by the run of this worker."""
        if self.run is None:
            return
        try:
            claimed_by = (self.folder / _RUN).read_text(encoding="utf-8")
        except OSError:
            claimed_by = None
        if claimed_by != self.run:
            raise InputError(
                f"{self.folder}: a worker does not find the folder of this run there; give a folder that every machine "
                f"of the cluster mounts at the same path"
            )

    def path(self, number: int) -> Path:
        """The path of a shard."""
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
        if not self.job.set_aside and self.bad_rows(chunk.number):
            raise InputError(
                f"{path}: was written without rows that were set aside; give --bad-rows again, another output, or "
                f"--overwrite"
            )
        return True

    def bad_rows(self, number: int) -> list[BadRow]:
        """The rows of a chunk that its shard was written without, because their embeddings are not finite."""
        path = self.path(number)
        if path.suffix == ".npy":
            return []
        import pyarrow.parquet as pq

        text = (pq.read_schema(path).metadata or {}).get(_BAD_ROWS, b"[]")
        try:
            return [BadRow.parse(record) for record in json.loads(text)]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is damaged; delete it and run the same command again") from error

    def write(self, chunk: Chunk, embeddings: Array) -> None:
        """Write a chunk's shard, whole or not at all. Rows that are not finite are set aside, or refused."""
        with np.errstate(over="ignore"):  # what overflows float16 is infinite, and told below
            path, numbers = self.path(chunk.number), embeddings.astype(self.job.number_type)
        finite = np.isfinite(numbers).all(axis=1)
        bad = [self._not_finite(chunk, int(place)) for place in np.flatnonzero(~finite)]
        if bad and not self.job.set_aside:
            raise InputError(
                f"{bad[0].file}:{bad[0].line}: {bad[0].reason}; write --number-type float32, or set such rows aside by "
                f"--bad-rows"
            )
        if path.suffix == ".npy":
            with atomic_file(self._sidecar(chunk.number), remedy=self._remedy) as building:
                building.write_text(f"{chunk.fingerprint} {_npy_checksum(numbers)}")
                self.check_run()
        with atomic_file(path, remedy=self._remedy) as building:
            if path.suffix == ".npy":
                np.save(building, numbers, allow_pickle=False)
            else:
                _write_parquet(building, self.job, chunk, numbers, finite, bad)
            self.check_run()

    def _not_finite(self, chunk: Chunk, place: int) -> BadRow:
        reason = f"its embedding has NaN, infinite or too large numbers for {self.job.number_type}"
        return BadRow(self.job.source.name, chunk.rows[place], chunk.lines[place], reason)

    @property
    def is_begun(self) -> bool:
        """Whether a shard is written."""
        return any(_SHARD.fullmatch(path.name) for path in self.folder.glob("part-*"))

    @property
    def _remedy(self) -> str:
        return f"the shards written before are kept: {_REMEDY}" if self.is_begun else _REMEDY

    def check_end(self, shards: int) -> None:
        """Refuse an input that ends before the shards do: it may be a broken pipe, so nothing is removed."""
        if self.path(shards).exists():
            raise InputError(
                f"{self.path(shards)}: was made of rows beyond the end of the input; "
                f"give the same input, another output, or --overwrite"
            )

    def finish(self, shards: int, *, set_aside: int = 0) -> int:
        """Write into the manifest that the run has ended, with the rows and the checksum of every shard; all rows."""
        paths = [self.path(number) for number in range(shards)]
        rows = {path.name: rows_of_shard(path) for path in paths}
        checksums = {path.name: file_sha256(path) for path in paths}
        manifest = read_json(self.folder / MANIFEST, remedy="run the same command again")
        ended = {"finished": True, "rows": sum(rows.values()), "shards": rows, "checksums": checksums}
        ended |= {"set_aside": set_aside} if set_aside else {}
        write_json(self.folder / MANIFEST, manifest | ended, indent=1)
        return sum(rows.values())

    def _prepare(self, settings: dict[str, Any], facts: Mapping[str, Any], overwrite: bool) -> None:
        manifest = self.folder / MANIFEST
        (self.folder / _RUN).unlink(missing_ok=True)  # workers of a killed run write no more
        names = sorted(path.name for path in self.folder.iterdir() if path.name != _LOCK)
        unfinished = [name for name in names if _UNFINISHED.fullmatch(name)]
        if set(names) - set(unfinished) and not manifest.is_file():
            other = next(name for name in names if name not in unfinished)
            raise InputError(f"{self.folder}: holds other files, e.g. {other}; give an empty or new folder")
        shards = [name for name in names if _SHARD.fullmatch(name)]
        if shards and not overwrite:
            _check_same(manifest, settings)
        sidecars = [name for name in names if _SIDECAR.fullmatch(name)]
        for name in unfinished + (shards + sidecars if overwrite else []):
            (self.folder / name).unlink()
        if overwrite or not shards:  # else it is of the same job
            write_json(manifest, portable({**settings, **facts}, self.folder) | {"finished": False}, indent=1)

    def _leave_nothing(self, is_new: bool) -> None:
        """Remove manifest, lock and a new folder where no shard was written."""
        if self.is_begun or not self.folder.is_dir():
            return
        names = [path.name for path in self.folder.iterdir()]
        ours = [name for name in names if name in (MANIFEST, _LOCK) or _SIDECAR.fullmatch(name)]
        for name in ours:
            (self.folder / name).unlink()
        if is_new and len(ours) == len(names):
            self.folder.rmdir()

    def _sidecar(self, number: int) -> Path:
        return self.folder / f"_part-{number:06d}.rows"


def join_shards(shards: Sequence[Path], out: Path) -> None:
    """Write one file of all shards' rows in order, then remove the shards. Parquet keeps the manifest with it."""
    folder = shards[0].parent
    for path in out.parent.glob(f".*{out.suffix}"):  # of a run that was killed while it joined
        if re.fullmatch(rf"\.{re.escape(out.stem)}\.\d+{re.escape(out.suffix)}", path.name):
            path.unlink()
    remedy = f"the shards in {folder} are complete: free some space and run the same command again"
    with atomic_file(out, remedy=remedy) as building:
        (_join_npy if out.suffix.lower() == ".npy" else _join_parquet)(shards, building)
    shutil.rmtree(folder)


def _join_npy(shards: Sequence[Path], building: Path) -> None:
    first = np.load(shards[0], mmap_mode="r", allow_pickle=False)
    shape = (sum(len(np.load(shard, mmap_mode="r", allow_pickle=False)) for shard in shards), first.shape[1])
    if first.dtype.itemsize * shape[0] * shape[1] > shutil.disk_usage(building.parent).free:
        raise OSError(28, "No space left on device")
    joined = new_mapped_array(building, dtype=first.dtype, shape=shape)
    start = 0
    for shard in shards:
        part = np.load(shard, allow_pickle=False)
        joined[start : start + len(part)] = part
        start += len(part)
    joined.flush()


def _join_parquet(shards: Sequence[Path], building: Path) -> None:
    import pyarrow.parquet as pq

    manifest = portable(resolved(read_json(shards[0].parent / MANIFEST), shards[0].parent), building.parent)
    for key in ("shards", "checksums"):  # they are of the shards, which are then removed
        manifest.pop(key, None)
    schema = pq.read_schema(shards[0]).with_metadata({EMBEDDED: json.dumps(manifest)})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(building, schema, **options) as writer:
        for shard in shards:
            writer.write_table(pq.read_table(shard).cast(schema))


def rows_of_shard(path: Path) -> int:
    """How many rows a shard has, by its head alone."""
    if path.suffix == ".npy":
        return len(np.load(path, mmap_mode="r", allow_pickle=False))
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _check_same(manifest: Path, now: dict[str, Any]) -> None:
    before = read_json(manifest, remedy="give another output, or --overwrite")
    for key in now:
        if before.get(key) != now[key]:
            if key == "model":
                raise InputError(
                    f"{manifest.parent}: was started with another model; give that one, another output, or --overwrite"
                )
            raise InputError(
                f"{manifest.parent}: was started with {key} = {before.get(key)!r}, now it is {now[key]!r}; "
                f"give the same settings, another output, or --overwrite"
            )


def _write_parquet(
    path: Path, job: EmbedJob, chunk: Chunk, numbers: Array, finite: NDArray[np.bool_], bad: Sequence[BadRow]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"row": pa.array(chunk.rows, pa.int64())}
    for place, name in enumerate(job.source.columns[1:]):
        columns[name] = _carried_column(job, name, [values[place] for values in chunk.carried])
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])
    metadata = {_ROWS: chunk.fingerprint} | ({_BAD_ROWS: json.dumps(list(map(asdict, bad)))} if bad else {})
    table = pa.table(columns).replace_schema_metadata(metadata)
    if bad:
        table = table.filter(pa.array(finite))
    # Embeddings do not compress; checksums tell a damaged shard when a run is resumed.
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)


def _carried_column(job: EmbedJob, name: str, values: list[Any]) -> Any:
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
    return (table.schema.metadata or {}).get(_ROWS, b"").decode() or None


def _rows_of_npy(path: Path, sidecar: Path) -> str | None:
    """As `_rows_of_parquet`, for an array; the fingerprint and a checksum are in its sidecar file."""
    try:
        rows, checksum = sidecar.read_text().split()
        same = int(checksum) == _npy_checksum(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None
    return rows if same else None


def _npy_checksum(numbers: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(numbers).data.cast("B"), zlib.crc32(repr(numbers.shape).encode()))
