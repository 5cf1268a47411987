"""What is known of a shard without reading it: a small file beside it, with its rows and checksums.

NPY shards have no room for it in themselves. In an object store every shard has one, so that a run is resumed and ended
without reading all of its vectors over the network; it is written before its shard.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.encoder import Array
from layerwise.stores import Place, StorePath


@dataclass(frozen=True)
class ShardRecord:
    """The digest of a shard's input rows, a checksum of its numbers; of one in a store, what its object is."""

    fingerprint: str
    numbers: int
    sha256: str = ""
    rows: int = 0
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> "ShardRecord | None":
        """From the text in the file; None where it is damaged."""
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
    """The name of a shard's record; readers of a Parquet folder ignore it."""
    return f"_part-{number:06d}.rows"


def numbers_checksum(numbers: Array) -> int:
    """Of an array's numbers and shape."""
    return zlib.crc32(np.ascontiguousarray(numbers).data.cast("B"), zlib.crc32(repr(numbers.shape).encode()))


class StoredShards:
    """The shards below a URL, by one listing, and their records, read many at a time."""

    def __init__(self, folder: StorePath) -> None:
        self._sizes = {path.name: path.size for path in folder.iterdir()}
        records = folder.read_below(name for name in self._sizes if name.startswith("_part-"))
        self._records = {name: ShardRecord.parse(data.decode("ascii", "replace")) for name, data in records.items()}

    def has(self, path: Place) -> bool:
        """Whether a shard is there."""
        return path.name in self._sizes

    def record(self, path: Place) -> ShardRecord | None:
        """What its record says of a shard; None where there is none, or it is of another object."""
        record = self._records.get(f"_{path.stem}.rows")
        return record if record is not None and record.size == self._sizes.get(path.name) and record.size else None
