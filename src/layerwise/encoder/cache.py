"""A disk cache of layer views: memory-mapped, keyed by everything that the views depend on, verified on read.

An entry is a folder with `views.npy` and `manifest.json`. It is built under a temporary name and renamed when complete,
so that an interrupted run never leaves a partial entry. A lock is held during the build, so that `clear` removes the
leftovers of interrupted runs but not the entries of running ones. An entry that does not match its manifest, including
a checksum of the content, is removed and rebuilt.
"""

import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from layerwise.digests import json_digest
from layerwise.encoder.arrays import Array
from layerwise.errors import InputError
from layerwise.files import new_mapped_array
from layerwise.places import default_cache_folder

log = logging.getLogger(__name__)

_FORMAT = 1
_CHUNK = 1 << 24
_BUILDING, _LOCK = "building-", ".lock"


@dataclass(frozen=True)
class ViewKey:
    """Everything that determines the values of an entry."""

    model: str
    tokenizer: str
    texts: str
    pooling: str
    max_length: int
    dtype: str
    backend: str
    shape: tuple[int, int, int]

    @property
    def digest(self) -> str:
        """The entry's name."""
        return json_digest({"format": _FORMAT, **asdict(self)})[:32]


@dataclass(frozen=True)
class CacheEntry:
    """An entry as shown by the command line."""

    name: str
    bytes: int
    manifest: dict[str, Any]


class ViewCache:
    """A folder of layer views; `$LAYERWISE_CACHE` or the user's cache folder by default."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_cache_folder() / "views"

    def get(self, key: ViewKey) -> Array | None:
        """Return the views of a key, memory-mapped and read-only; None if they are missing or damaged."""
        entry = self.folder / key.digest
        if not entry.exists():
            return None
        fault = _fault(entry, key)
        if fault is None:
            return self._open(key)
        log.warning("%s: cached views are refused and built again: %s", entry, fault)
        if entry.is_file():
            entry.unlink()
        shutil.rmtree(entry, ignore_errors=True)
        return None

    def put_all(self, keys: Sequence[ViewKey], fill: Callable[[Sequence[Array]], None], *, label: str) -> list[Array]:
        """Call `fill` with one new memory-mapped array per key, store the arrays as entries and return them."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_room(keys)
            with (
                tempfile.TemporaryDirectory(prefix=_BUILDING, dir=self.folder) as building,
                FileLock(Path(building) / _LOCK),
            ):
                folders = [Path(building) / key.digest for key in keys]
                fill([_new_views(folder, key) for folder, key in zip(folders, keys, strict=True)])
                for folder, key in zip(folders, keys, strict=True):
                    _write_manifest(folder, key, label)
                    self._publish(folder, key)
            return [self._open(key) for key in keys]
        except OSError as error:
            raise InputError(
                f"{self.folder}: views cannot be cached here: {error.strerror or error}; "
                f"set LAYERWISE_CACHE to another folder"
            ) from error

    def _open(self, key: ViewKey) -> Array:
        views: Array = np.load(self.folder / key.digest / "views.npy", mmap_mode="r")
        return views

    def entries(self) -> Iterator[CacheEntry]:
        """Iterate over all entries, including unfinished ones of interrupted runs (with an empty manifest)."""
        for folder in sorted(self.folder.glob("*")):
            if folder.is_dir():
                yield CacheEntry(folder.name, _size(folder), _read_manifest(folder) or {})

    def clear(self, prefix: str = "") -> int:
        """Remove the entries whose name starts with `prefix` and return the number of bytes freed.

        Entries that a running process is building are not removed.
        """
        freed = 0
        for entry in list(self.entries()):
            if entry.name.startswith(prefix):
                if entry.name.startswith(_BUILDING) and _is_locked(self.folder / entry.name):
                    log.info("%s: is being built by a running process and is left", self.folder / entry.name)
                    continue
                shutil.rmtree(self.folder / entry.name, ignore_errors=True)
                freed += entry.bytes
        return freed

    def _check_room(self, keys: Sequence[ViewKey]) -> None:
        """Check the free disk space before encoding starts."""
        needed, free = sum(4 * int(np.prod(key.shape)) for key in keys), shutil.disk_usage(self.folder).free
        if needed > free:
            raise InputError(
                f"{self.folder}: {needed:,} bytes are needed to cache these views and {free:,} are free; "
                f"make room with `layerwise cache clear`, or set LAYERWISE_CACHE to another disk"
            )

    def _publish(self, building: Path, key: ViewKey) -> None:
        try:
            building.rename(self.folder / key.digest)
        except OSError:  # another process has stored the same views
            if not (self.folder / key.digest / "manifest.json").is_file():
                raise


def _size(folder: Path) -> int:
    """Return the size of a folder's files in bytes; other processes may delete files meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _is_locked(building: Path) -> bool:
    """Whether the process that builds this entry is still running, that is, holds its lock."""
    try:
        with FileLock(building / _LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # deleted in the meantime
        return False


def _new_views(folder: Path, key: ViewKey) -> Array:
    folder.mkdir()
    views: Array = new_mapped_array(folder / "views.npy", dtype=np.float32, shape=key.shape)
    return views


def _write_manifest(folder: Path, key: ViewKey, label: str) -> None:
    facts = {"format": _FORMAT, "label": label, "key": asdict(key), "crc32": _crc32(folder / "views.npy")}
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _fault(entry: Path, key: ViewKey) -> str | None:
    """Return why an entry is invalid, or None."""
    facts = _read_manifest(entry)
    if facts is None:
        return "its manifest is missing or damaged"
    try:
        saved = replace(ViewKey(**facts["key"]), shape=tuple(facts["key"]["shape"]))
    except (KeyError, TypeError):
        return "its manifest lacks facts"
    if saved != key or facts.get("format") != _FORMAT:
        return "it was made for another model, text or setting"
    path = entry / "views.npy"
    if not path.is_file():
        return "its views are missing"
    if _crc32(path) != facts.get("crc32"):
        return "its checksum differs from the manifest's"
    return None


def _crc32(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total = zlib.crc32(chunk, total)
    return total
