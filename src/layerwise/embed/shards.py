"""The output: a folder of shards and a manifest.

Shards are written atomically, so that an interrupted run can be resumed. Readers of a Parquet folder ignore names that
begin with a dot (unfinished files) or an underscore, so the folder reads as one table at any moment. The folder may be
in an object store: nothing is renamed there, and the manifest that marks the run as finished is written last.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from layerwise.digests import file_sha256
from layerwise.embed.bad_rows import BadRow
from layerwise.embed.job import Chunk, EmbedJob
from layerwise.embed.record_paths import portable
from layerwise.embed.shard_files import bad_rows_of, fingerprint_of, rows_of_shard, write_parquet
from layerwise.embed.shard_records import ShardRecord, StoredShards, numbers_checksum, record_name
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.files import atomic_file, read_json, reason_of, write_json, write_text
from layerwise.stores import Place, StoreLock, StorePath, remove

MANIFEST = "_embed.json"
_LOCK, _RUN = ".lock", ".run"
_SHARD = re.compile(r"part-\d{6}\.(parquet|npy)")
_SIDECAR = re.compile(r"_part-\d{6}\.rows")
_UNFINISHED = re.compile(r"\.(_?part-\d{6}|_embed)\.\d+\.(parquet|npy|rows|json)")  # names of `atomic_file`
_REMEDY = "free some space and run the same command again"


class ShardFolder:
    """The shards of one job. With `run`, only that run may write; see `claimed`."""

    def __init__(self, folder: Place, job: EmbedJob, run: str | None = None) -> None:
        self.folder = folder
        self.job = job
        self.run = run
        self._has_shards = False
        self._lock: StoreLock | None = None
        self._stored: StoredShards | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the lock, which stays in the main process."""
        return type(self), (self.folder, self.job, self.run)

    @contextmanager
    def opened(
        self, settings: dict[str, Any], *, overwrite: bool, facts: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Lock the folder for this job: create it, empty it if `overwrite`, or resume it if it has the same job.

        `facts` are also written into the manifest and may change between runs of the same job. A run that fails before
        its first shard is cleaned up.
        """
        lock, is_new = self._new_lock(), not self.folder.exists()
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
            raise InputError(f"{self.folder}: cannot be written to: {reason_of(error)}; {_REMEDY}") from error
        else:
            yield
        finally:
            if lock.is_locked:
                with suppress(InputError):  # the store is unreachable
                    self._clean_up(is_new)
            lock.release()

    def _new_lock(self) -> FileLock | StoreLock:
        if not isinstance(self.folder, StorePath):
            return FileLock(self.folder / _LOCK, timeout=0)
        self._lock = StoreLock(self.folder / _LOCK)
        return self._lock

    @contextmanager
    def claimed(self) -> Iterator["ShardFolder"]:
        """Yield the folder for workers on other machines, which cannot hold its lock.

        They identify it by a token that this run writes into it. So workers reject a local folder that only has the
        same path, and a worker that outlives its run does not write into the folder of the next. On exit, unfinished
        files of killed workers are removed.
        """
        mark, run = self.folder / _RUN, secrets.token_hex(16)
        write_text(mark, run)
        try:
            folder = self.folder.absolute() if isinstance(self.folder, Path) else self.folder
            yield ShardFolder(folder, self.job, run)
        finally:
            mark.unlink(missing_ok=True)
            for path in self.folder.glob(".*"):
                if _UNFINISHED.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def check_run(self) -> None:
        """Raise if the folder is not claimed by the run of this worker."""
        if self.run is None:
            return
        try:
            claimed_by = (self.folder / _RUN).read_text(encoding="utf-8")
        except (OSError, InputError):
            claimed_by = None
        if claimed_by != self.run:
            raise InputError(
                f"{self.folder}: a worker does not find the folder of this run there; give a folder that every machine "
                f"of the cluster mounts at the same path"
            )

    def path(self, number: int) -> Place:
        """Return the path of a shard."""
        return self.folder / f"part-{number:06d}.{self.job.format}"

    def has(self, chunk: Chunk) -> bool:
        """Whether a chunk's shard is written. Raises if it is damaged or has other rows."""
        path = self.path(chunk.number)
        if self._lock is not None:
            self._lock.check()
        if not (path.is_file() if self._stored is None else self._stored.has(path)):
            return False
        recorded = self._fingerprint(path)
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
        """Return the rows left out of a chunk's shard because their embeddings are not finite."""
        return bad_rows_of(self.path(number))

    def write(self, chunk: Chunk, embeddings: Array) -> None:
        """Write a chunk's shard atomically. Non-finite rows are set aside, or raise."""
        with np.errstate(over="ignore"):  # values that overflow float16 become infinite and are handled below
            path, numbers = self.path(chunk.number), embeddings.astype(self.job.number_type)
        finite = np.isfinite(numbers).all(axis=1)
        bad = [self._not_finite(chunk, int(place)) for place in np.flatnonzero(~finite)]
        if bad and not self.job.set_aside:
            raise InputError(
                f"{bad[0].file}:{bad[0].line}: {bad[0].reason}; write --number-type float32, or set such rows aside by "
                f"--bad-rows"
            )
        if path.suffix == ".npy" and isinstance(path, Path):
            with atomic_file(self._sidecar(chunk.number), remedy=self._remedy) as building:
                building.write_text(str(ShardRecord(chunk.fingerprint, numbers_checksum(numbers))))
                self.check_run()
        with atomic_file(path, remedy=self._remedy) as building:
            if path.suffix == ".npy":
                np.save(building, numbers, allow_pickle=False)
            else:
                write_parquet(building, self.job, chunk, numbers, finite, bad)
            self.check_run()
            if isinstance(path, StorePath):
                stored = (file_sha256(building), int(finite.sum()), building.stat().st_size)
                record = ShardRecord(chunk.fingerprint, numbers_checksum(numbers), *stored)
                self._sidecar(chunk.number).write_bytes(str(record).encode())
        self._has_shards = True

    def _not_finite(self, chunk: Chunk, place: int) -> BadRow:
        reason = f"its embedding has NaN, infinite or too large numbers for {self.job.number_type}"
        return BadRow(self.job.source.name, chunk.rows[place], chunk.lines[place], reason)

    @property
    def has_shards(self) -> bool:
        """Whether any shard is written; False if the folder is deleted while it is listed."""
        with suppress(FileNotFoundError):
            self._has_shards = self._has_shards or any(
                _SHARD.fullmatch(path.name) for path in self.folder.glob("part-*")
            )
        return self._has_shards

    @property
    def _remedy(self) -> str:
        return f"the shards written before are kept: {_REMEDY}" if self.has_shards else _REMEDY

    def check_end(self, shards: int) -> None:
        """Raise if there are shards beyond the end of the input, which may be a broken pipe."""
        if self.path(shards).exists():
            raise InputError(
                f"{self.path(shards)}: was made of rows beyond the end of the input; "
                f"give the same input, another output, or --overwrite"
            )

    def finish(self, shards: int, *, set_aside: int = 0) -> int:
        """Mark the run as finished in the manifest, with each shard's rows and checksum; return the number of rows."""
        if isinstance(self.folder, StorePath):
            self._stored = StoredShards(self.folder)
        facts = {path.name: self._rows_and_checksum(path) for path in map(self.path, range(shards))}
        rows = {name: count for name, (count, _) in facts.items()}
        checksums = {name: checksum for name, (_, checksum) in facts.items()}
        if self._lock is not None:
            self._lock.check()
        manifest = read_json(self.folder / MANIFEST, remedy="run the same command again")
        ended = {"finished": True, "rows": sum(rows.values()), "shards": rows, "checksums": checksums}
        ended |= {"set_aside": set_aside} if set_aside else {}
        write_json(self.folder / MANIFEST, manifest | ended, indent=1)
        return sum(rows.values())

    def _prepare(self, settings: dict[str, Any], facts: Mapping[str, Any], overwrite: bool) -> None:
        manifest = self.folder / MANIFEST
        (self.folder / _RUN).unlink(missing_ok=True)  # stops workers of a killed run
        names = sorted(path.name for path in self.folder.iterdir() if path.name != _LOCK)
        unfinished = [name for name in names if _UNFINISHED.fullmatch(name)]
        if set(names) - set(unfinished) and not manifest.is_file():
            other = next(name for name in names if name not in unfinished)
            raise InputError(f"{self.folder}: holds other files, e.g. {other}; give an empty or new folder")
        shards = [name for name in names if _SHARD.fullmatch(name)]
        if shards and not overwrite:
            _check_same(manifest, settings)
        sidecars = [name for name in names if _SIDECAR.fullmatch(name)]
        removed = unfinished + (shards + sidecars if overwrite else [])
        remove(self.folder / name for name in removed)
        if overwrite or not shards:  # otherwise the manifest is that of the same job
            write_json(manifest, portable({**settings, **facts}, self.folder) | {"finished": False}, indent=1)
        if isinstance(self.folder, StorePath):
            self._stored = StoredShards(self.folder)

    def _fingerprint(self, path: Place) -> str | None:
        """Return the digest of a shard's input rows; None if the shard is damaged."""
        record = self._stored.record(path) if self._stored is not None else None
        if record is not None:
            return record.fingerprint
        return fingerprint_of(path, self.job)

    def _rows_and_checksum(self, path: Place) -> tuple[int, str]:
        record = self._stored.record(path) if self._stored is not None else None
        if record is not None:
            return record.rows, record.sha256
        try:
            return rows_of_shard(path), file_sha256(path)
        except OSError as error:
            raise InputError(f"{path}: is gone or cannot be read; run the same command again") from error

    def _clean_up(self, is_new: bool) -> None:
        """Remove manifest, lock and a new folder if no shard was written."""
        if self.has_shards or not self.folder.is_dir():
            return
        names = [path.name for path in self.folder.iterdir()]
        ours = [name for name in names if name in (MANIFEST, _LOCK) or _SIDECAR.fullmatch(name)]
        remove(self.folder / name for name in ours)
        if is_new and len(ours) == len(names):
            self.folder.rmdir()

    def _sidecar(self, number: int) -> Place:
        return self.folder / record_name(number)


def _check_same(manifest: Place, current: dict[str, Any]) -> None:
    recorded = read_json(manifest, remedy="give another output, or --overwrite")
    for key in current:
        if recorded.get(key) != current[key]:
            if key == "model":
                raise InputError(
                    f"{manifest.parent}: was started with another model; give that one, another output, or --overwrite"
                )
            raise InputError(
                f"{manifest.parent}: was started with {key} = {recorded.get(key)!r}, now it is {current[key]!r}; "
                f"give the same settings, another output, or --overwrite"
            )
