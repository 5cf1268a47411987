"""Which rows are kept: none with an empty text, each once, no more than asked for; all of it counted."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from layerwise.errors import InputError

Texts = tuple[str, ...]
FEWEST = 2
_REMEMBERED = 1_000_000
_HASH_BYTES = 8


@dataclass(frozen=True)
class CorpusCounts:
    """Rows read = empty + duplicates + kept. Rows that another condition left out, or beyond a limit, are not read."""

    read: int = 0
    empty: int = 0
    duplicates: int = 0
    kept: int = 0

    def __str__(self) -> str:
        return f"{self.read:,} rows read, {self.empty:,} empty, {self.duplicates:,} repeated, {self.kept:,} kept"


class Memory(Protocol):
    """Remembers rows."""

    def is_new(self, row: Texts) -> bool:
        """Whether the row comes for the first time; it is remembered."""


class AllRows:
    """Remembers every row itself, exactly: for what is in memory anyway."""

    def __init__(self) -> None:
        self._rows: set[Texts] = set()

    def is_new(self, row: Texts) -> bool:
        """Whether the row comes for the first time."""
        before = len(self._rows)
        self._rows.add(row)
        return len(self._rows) > before


class RecentRows:
    """Remembers hashes of 8 bytes of the rows last seen, in bounded memory.

    At most `most` are remembered and at least the last half of that: of two halves, the older is forgotten when the
    newer is full. A repetition from further back is not noticed. The hash is the same in every process, so that all
    processes of a training keep the same rows.
    """

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._half = max(1, most // 2)
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def is_new(self, row: Texts) -> bool:
        """Whether the row is none of those remembered."""
        data = "\0".join(row).encode()
        key = int.from_bytes(hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), "little")
        if key in self._newer:
            return False
        known = key in self._older
        self._newer.add(key)
        if len(self._newer) == self._half:
            self._older, self._newer = self._newer, set()
        return not known


class Sieve:
    """Lets rows through, stripped of the white space around their texts, and counts.

    Args:
        memory: What knows repeated rows; None lets them through.
        limit: How many rows are let through at most: the first ones.
    """

    def __init__(self, memory: Memory | None, limit: int | None = None) -> None:
        if limit is not None and limit < FEWEST:
            raise InputError(f"limit is {limit}; training needs {FEWEST} rows or more")
        self._memory = memory
        self._limit = limit
        self._read = self._empty = self._kept = 0
        self._first: Texts | None = None
        self._differ = False

    @property
    def counts(self) -> CorpusCounts:
        """What was counted so far."""
        return CorpusCounts(self._read, self._empty, self._read - self._empty - self._kept, self._kept)

    def __call__(self, rows: Iterable[Sequence[str]]) -> Iterator[Texts]:
        """The rows that are kept, as they come."""
        for given in rows:
            row = tuple(text.strip() for text in given)
            self._read += 1
            if not all(row):
                self._empty += 1
            elif self._memory is None or self._memory.is_new(row):
                self._kept += 1
                self._first = self._first or row
                self._differ = self._differ or row != self._first
                yield row
                if self._kept == self._limit:
                    return

    def require_two(self, name: str) -> None:
        """An error unless two different rows came through."""
        if not self._kept:
            raise InputError(f"{name}: nothing to train on ({self.counts}); check the file and the columns' names")
        if not self._differ:
            raise InputError(
                f"{name}: contrastive training needs at least two different sentences, here is one ({self.counts}); "
                f"give a larger file"
            )
