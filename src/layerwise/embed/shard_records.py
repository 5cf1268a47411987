"""Shard records: small sidecar files with a shard's rows and checksums, so that the shard need not be read.

NPY shards have no metadata of their own. In an object store every shard has a record, so that a run is resumed and
finished without downloading its vectors; the record is written before its shard.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.encoder import Array
from layerwise.stores import Place, StorePath


@dataclass(frozen=True)
class ShardRecord:
    """The digest of a shard's input rows and a checksum of its values; in a store, also those of its object."""

    fingerprint: str
    numbers: int
    sha256: str = ""
    rows: int = 0
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> "ShardRecord | None":
        """Parse the text of the file; None if it is damaged."""
        parts = text.split()
        try:
            return cls(parts[0], int(parts[1]), *(kind(part) for kind, part in zip(_KINDS, parts[2:], strict=False)))
        except (ValueError, IndexError):
            return None

    def __str__(self) -> str:
        stored = f" {self.sha256} {self.rows} {self.size}" if self.sha256 else ""
        return f"{self.fingerprint} {self.numbers}{stored}"


_KINDS: tuple[Any, ...] = (str, int, int)


def record_name(number: int) -> str:
    """Return the name of a shard's record, which readers of a Parquet folder ignore."""
    return f"_part-{number:06d}.rows"


def numbers_checksum(numbers: Array) -> int:
    """Return a checksum of an array's values and shape."""
    return zlib.crc32(np.ascontiguousarray(numbers).data.cast("B"), zlib.crc32(repr(numbers.shape).encode()))


class StoredShards:
    """The shards below a URL, listed once, and their records, read concurrently."""

    def __init__(self, folder: StorePath) -> None:
        self._sizes = {path.name: path.size for path in folder.iterdir()}
        records = folder.read_below(name for name in self._sizes if name.startswith("_part-"))
        self._records = {name: ShardRecord.parse(data.decode("ascii", "replace")) for name, data in records.items()}

    def has(self, path: Place) -> bool:
        """Whether a shard exists."""
        return path.name in self._sizes

    def record(self, path: Place) -> ShardRecord | None:
        """Return a shard's record; None if there is none, or it does not match the object."""
        record = self._records.get(f"_{path.stem}.rows")
        return record if record is not None and record.size == self._sizes.get(path.name) and record.size else None
