"""The sets of layers that a search may choose from.

Sets are bit masks: bit i of a mask says that layer i is in the set. The text of a space, for the command line:

    all | up to 4 | at least 2 | exactly 3 | contiguous | with 0,1 | without 12 | 0-6,12 (only these layers)

several of them joined by `;`, such as `up to 4; without 0`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import comb
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import resolve_layer
from layerwise.errors import MixError
from layerwise.mixes import parse_mix

Masks = NDArray[np.uint64]
_MAX_LAYERS = 63  # bits of a mask
_SIZE = re.compile(r"(up to|at most|<=|at least|>=|exactly|==?)[\s-]*(\d+)")
_NAMED = re.compile(r"(with|include|without|exclude)\s+(.+)")
_HELP = (
    "a space is 'all', 'up to 4', 'at least 2', 'exactly 3', 'contiguous', 'with 0,1', 'without 12' or the layers that "
    "may be used such as '0-6,12'; several are joined by ';'"
)


@dataclass(frozen=True)
class Space:
    """A collection of sets of layers; by default all sets but the empty one.

    Args:
        smallest: The minimum number of layers of a set.
        largest: The maximum number.
        contiguous: Only consecutive layers.
        include: Layers that every set contains; negative numbers count from the last.
        exclude: Layers that no set contains.
        only: The layers that may be used; all by default.
        highest: The highest layer that may be used: the blocks above need not run.

    >>> Space(largest=2).count(13)
    91
    """

    smallest: int = 1
    largest: int | None = None
    contiguous: bool = False
    include: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    only: tuple[int, ...] | None = None
    highest: int | None = None

    def __post_init__(self) -> None:
        if self.smallest < 1 or (self.largest is not None and self.largest < self.smallest):
            raise MixError(f"No set has {self.smallest} or more and {self.largest} or fewer layers, at least one")

    @classmethod
    def parse(cls, text: str, *, highest: int | None = None) -> Self:
        """Parse the text of a space."""
        space = cls(highest=highest)
        for term in (part.strip() for part in text.lower().replace("-to-", " to ").split(";")):
            space = space._with(**_parse_term(term, text))
        return space

    @classmethod
    def exactly(cls, size: int) -> Self:
        """The sets of `size` layers."""
        return cls(smallest=size, largest=size)

    def bits(self, layers: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The layers that every set contains, and those that a set may contain."""
        if layers > _MAX_LAYERS:
            raise MixError(f"{layers} layers are more than a search can take ({_MAX_LAYERS})")
        depth = layers - 1
        forced = {resolve_layer(layer, depth) for layer in self.include}
        usable = set(range(layers)) if self.only is None else {resolve_layer(layer, depth) for layer in self.only}
        usable -= {resolve_layer(layer, depth) for layer in self.exclude}
        if self.highest is not None:
            usable &= set(range(resolve_layer(self.highest, depth) + 1))
        if not forced <= usable:
            raise self._empty(layers)
        return tuple(sorted(forced)), tuple(sorted(usable - forced))

    def count(self, layers: int) -> int:
        """The number of sets for an encoder with this number of layers; refuses an empty space."""
        forced, free = self.bits(layers)
        if self.contiguous:
            sets = sum(1 for _ in self._ranges(forced, free))
        else:
            sets = sum(comb(len(free), size - len(forced)) for size in self._sizes(forced, free))
        if not sets:
            raise self._empty(layers)
        return sets

    def allows(self, masks: Masks) -> NDArray[np.bool_]:
        """Which masks of free and forced layers satisfy the conditions on size and contiguity."""
        sizes = np.bitwise_count(masks)
        allowed = (sizes >= self.smallest) & (sizes <= (self.largest or _MAX_LAYERS))
        if self.contiguous:
            lowest = masks & (~masks + np.uint64(1))
            allowed &= (masks & (masks + lowest)) == 0
        return np.asarray(allowed)

    def highest_single(self, layers: int) -> int | None:
        """The highest layer that is a set by itself; None if the space has no single layers."""
        forced, free = self.bits(layers)
        if self.smallest > 1 or len(forced) > 1:
            return None
        return max(forced or free)

    @property
    def takes_all_sizes(self) -> bool:
        """Whether every mask but the empty one is allowed."""
        return self.smallest == 1 and self.largest is None and not self.contiguous

    def masks(self, layers: int, rows: int) -> Iterator[Masks]:
        """All sets, in blocks of `rows`, small ones first."""
        forced, free = self.bits(layers)
        sets = self._ranges(forced, free) if self.contiguous else self._subsets(forced, free)
        while block := list(islice(sets, rows)):
            yield np.array(block, dtype=np.uint64)

    def __str__(self) -> str:
        parts = [f"{self.smallest} or more layers"] if self.smallest > 1 and self.largest != self.smallest else []
        if self.largest is not None:
            parts += [f"{'exactly' if self.largest == self.smallest else 'up to'} {self.largest} layers"]
        parts += ["contiguous"] * self.contiguous
        parts += [f"with {_listed(self.include)}"] * bool(self.include)
        parts += [f"without {_listed(self.exclude)}"] * bool(self.exclude)
        parts += [f"only {_listed(self.only or ())}"] * (self.only is not None)
        parts += [f"none above {self.highest}"] * (self.highest is not None)
        return ", ".join(parts) or "all sets"

    def _with(
        self,
        *,
        smallest: int = 1,
        largest: int | None = None,
        contiguous: bool = False,
        include: tuple[int, ...] = (),
        exclude: tuple[int, ...] = (),
        only: tuple[int, ...] | None = None,
    ) -> Self:
        """This space with further conditions."""
        sizes = [size for size in (self.largest, largest) if size is not None]
        return replace(
            self,
            smallest=max(self.smallest, smallest),
            largest=min(sizes, default=None),
            contiguous=self.contiguous or contiguous,
            include=self.include + include,
            exclude=self.exclude + exclude,
            only=only if self.only is None else tuple(layer for layer in self.only if only is None or layer in only),
        )

    def _sizes(self, forced: tuple[int, ...], free: tuple[int, ...]) -> range:
        available = len(forced) + len(free)
        return range(max(self.smallest, len(forced)), min(self.largest or available, available) + 1)

    def _subsets(self, forced: tuple[int, ...], free: tuple[int, ...]) -> Iterator[int]:
        base = mask_of(forced)
        for size in self._sizes(forced, free):
            for chosen in combinations(free, size - len(forced)):
                yield base | mask_of(chosen)

    def _ranges(self, forced: tuple[int, ...], free: tuple[int, ...]) -> Iterator[int]:
        usable, base = {*forced, *free}, mask_of(forced)
        for size in self._sizes(forced, free):
            for first in usable:
                run = range(first, first + size)
                if usable.issuperset(run) and mask_of(run) & base == base:
                    yield mask_of(run)

    def _empty(self, layers: int) -> MixError:
        return MixError(f"No set of layers 0 to {layers - 1} fits the space: {self}; loosen one of its conditions")


def mask_of(layers: Iterable[int]) -> int:
    """A set of layers as a bit mask."""
    return sum(1 << layer for layer in set(layers))


def layers_of(mask: int) -> tuple[int, ...]:
    """The layers of a mask, sorted."""
    return tuple(layer for layer in range(int(mask).bit_length()) if int(mask) >> layer & 1)


def membership(masks: Masks, layers: int) -> NDArray[np.float64]:
    """Masks as rows of 0 and 1: (sets,) -> (sets, layers)"""
    bits = masks[:, None] >> np.arange(layers, dtype=np.uint64) & np.uint64(1)
    return bits.astype(np.float64)


def highest_layers(masks: Masks) -> NDArray[np.int64]:
    """The highest layer of every set: (sets,) -> (sets,)"""
    highest = np.full(masks.shape, -1, dtype=np.int64)
    for layer in range(_MAX_LAYERS):
        reached = masks >> np.uint64(layer)
        if not reached.any():
            break
        highest += reached > 0
    return highest


def _parse_term(term: str, text: str) -> dict[str, Any]:
    if term == "all":
        return {}
    if term == "contiguous":
        return {"contiguous": True}
    if match := _SIZE.fullmatch(term):
        size = int(match[2])
        if match[1] in ("exactly", "=", "=="):
            return {"smallest": size, "largest": size}
        return {"smallest" if match[1] in ("at least", ">=") else "largest": size}
    if match := _NAMED.fullmatch(term):
        return {"include" if match[1] in ("with", "include") else "exclude": _parse_layers(match[2], text)}
    return {"only": _parse_layers(term, text)}


def _parse_layers(term: str, text: str) -> tuple[int, ...]:
    if "@" in term:
        raise MixError(f"{text!r}: a space has no token pooling; {_HELP}")
    try:
        layers = parse_mix(term).listed_layers
    except MixError as error:
        raise MixError(f"{text!r}: {term!r} is no space of layers; {_HELP}") from error
    if layers is None:
        raise MixError(f"{text!r}: {term!r} names no plain layers; {_HELP}")
    return layers


def _listed(layers: tuple[int, ...]) -> str:
    return ",".join(map(str, layers))
