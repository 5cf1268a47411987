"""Resamples: bootstrap draws and jackknife samples of units, or of groups of them that share a sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.errors import InputError

Rows = NDArray[np.intp]
Numbers = NDArray[np.floating[Any]]
_MAX_LEFT_OUT = 200  # parts of the units that the jackknife leaves out
_BLOCK = 2**18  # numbers drawn at once: what fits into the cache


def check_seed(seed: int) -> None:
    """Refuse a negative seed, as NumPy's generators do."""
    if seed < 0:
        raise InputError(f"The seed {seed} is negative; it must be 0 or more")


def check_resamples(resamples: int) -> None:
    """Refuse a number of resamples that gives no interval."""
    if resamples < 1:
        raise InputError(f"{resamples} resamples are not possible; give 1 or more")


@dataclass(frozen=True)
class Redraws:
    """The units on which a gain is computed again: bootstrap resamples, and jackknife samples that leave out a part.

    Args:
        size: The number of units.
        resamples: The units of each bootstrap resample.
        without: The units of each jackknife sample; none if scores are not smooth.
        starts: Random seeds over which a score that depends on one is averaged; 1 for other scores.
        groups: The group of every unit if whole groups are drawn, else None.
    """

    size: int
    resamples: Sequence[Rows]
    without: Sequence[Rows]
    starts: int = 1
    groups: Rows | None = None

    @classmethod
    def of(
        cls,
        size: int,
        *,
        seed: int = 0,
        resamples: int = 2000,
        smooth: bool = True,
        groups: ArrayLike | None = None,
        starts: int = 1,
    ) -> Self:
        """Draw units, or whole groups where groups have several units (the cluster bootstrap).

        Args:
            size: The number of units.
            seed: The seed of the draws.
            resamples: The number of bootstrap resamples.
            smooth: Whether no single unit changes the score much; if not, the jackknife is invalid and left out.
            groups: The group of every unit.
            starts: Random seeds of the score, if it depends on one.
        """
        check_seed(seed)
        check_resamples(resamples)
        random = np.random.default_rng(seed)
        members = _Members.of(size, groups)
        draws = [members.units(random.integers(members.count, size=members.count)) for _ in range(resamples)]
        parts = np.array_split(random.permutation(members.count), min(members.count, _MAX_LEFT_OUT)) if smooth else []
        without = [members.units(np.setdiff1d(np.arange(members.count), part)) for part in parts]
        return cls(size, draws, without, starts, None if members.is_single else members.groups)


@dataclass(frozen=True)
class _Members:
    """The units of each group: `order[starts[g] : starts[g] + sizes[g]]`."""

    groups: Rows
    order: Rows
    starts: Rows
    sizes: Rows

    @classmethod
    def of(cls, size: int, groups: ArrayLike | None) -> Self:
        labels = np.arange(size) if groups is None else np.asarray(groups)
        if len(labels) != size:
            raise InputError(f"{len(labels)} groups for {size} units: the lengths differ")
        numbers = np.unique(labels, return_inverse=True)[1]
        sizes = np.bincount(numbers)
        return cls(numbers, np.argsort(numbers, kind="stable"), np.cumsum(sizes) - sizes, sizes)

    @property
    def count(self) -> int:
        return len(self.sizes)

    @property
    def is_single(self) -> bool:
        return self.count == len(self.order)

    def units(self, drawn: Rows) -> Rows:
        """The units of groups, as often as these are drawn."""
        if self.is_single:
            return self.order[drawn]
        sizes = self.sizes[drawn]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        units: Rows = self.order[np.repeat(self.starts[drawn], sizes) + within]
        return units


def row_counts(random: np.random.Generator, rows: int, resamples: int) -> Iterator[Numbers]:
    """Iterate over chunks of bootstrap row counts, (draws, rows)."""
    block = max(1, _BLOCK // rows)
    for start in range(0, resamples, block):
        draws = min(block, resamples - start)
        drawn = random.integers(rows, size=(draws, rows)) + rows * np.arange(draws)[:, None]
        yield np.bincount(drawn.ravel(), minlength=draws * rows).reshape(draws, rows).astype(np.float64)
