"""Splits: some units choose, others report, and no sentence is on both sides.

A unit is what is drawn: a pair, a query, a row of a class. Units that share a sentence go to one side together, so that
none is thrown away. Only where nearly all are connected, or where a task declares its split, are reporting units left
out that share a sentence with a choosing one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.errors import InputError
from layerwise.evidence.apart import Texts, connected_groups, resampled_groups, without_leaks
from layerwise.evidence.resamples import check_seed

Rows = NDArray[np.intp]
FEWEST = 5  # units that must choose, and that must report


class Split(NamedTuple):
    """The units that choose and those that report."""

    dev: Rows
    test: Rows


class Fold(NamedTuple):
    """Choosing units of a split that train, and those that score what was trained."""

    train: Rows
    dev: Rows


@dataclass(frozen=True, eq=False)
class Splits(Sequence[Split]):
    """Splits with their caveats.

    Args:
        parts: The splits.
        left_out: The number of reporting units, over all splits, left out because they share a sentence with a choosing
            one.
        groups: The group of every unit, which is resampled as a whole: (units,)
        notes: Caveats in words, for the result's warnings.
        folds: The folds of each split's choosing units, if something is trained on them.
    """

    parts: tuple[Split, ...]
    left_out: int
    groups: Rows
    notes: tuple[str, ...] = ()
    folds: tuple[tuple[Fold, ...], ...] = ()

    @overload
    def __getitem__(self, index: int) -> Split: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Split]: ...
    def __getitem__(self, index: int | slice) -> Split | Sequence[Split]:
        return self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Split]:
        return iter(self.parts)

    @property
    def units(self) -> int:
        """The number of units that are split."""
        return len(self.groups)


def draw_splits(
    units: int,
    dev: int | float,
    n: int,
    seed: int,
    *,
    texts: Texts | None = None,
    groups: ArrayLike | None = None,
    unit: str = "pairs",
) -> Splits:
    """Draw random splits.

    Args:
        units: The number of units.
        dev: The number of units that choose, or their share below 1. Groups stay together, so that it is met as nearly
            as they allow.
        n: The number of splits.
        seed: The seed of the draws.
        texts: The sentences of each unit.
        groups: A group of every unit, such as its document, that stays on one side.
        unit: The name of the units.
    """
    n_dev = _dev_size(units, dev, n, seed, unit)
    connected = _groups(units, texts, groups, unit)
    random = np.random.default_rng(seed)
    orders = [random.permutation(units) for _ in range(n)]
    if texts is not None and _is_one_group(connected, n_dev):
        declared = connected_groups(units, None, groups)
        return _leave_out([Split(*divide(order, declared, n_dev)) for order in orders], texts, connected, unit)
    parts = tuple(Split(*divide(order, connected, n_dev)) for order in orders)
    smallest = min(len(side) for part in parts for side in part)
    if smallest < FEWEST:
        raise InputError(
            f"{units} {unit} are in {len(np.unique(connected))} groups that share sentences, which leaves {smallest} "
            f"{unit} on one side of a split; give {unit} whose sentences do not repeat, or another number of dev {unit}"
        )
    return Splits(parts, 0, resampled_groups(connected, texts), _notes_on_groups(connected, parts, n_dev, unit))


def fixed_splits(
    parts: Sequence[tuple[Rows, Rows]],
    *,
    texts: Texts | None = None,
    gold: ArrayLike | None = None,
    units: int | None = None,
    unit: str = "pairs",
) -> Splits:
    """Take declared splits, without the reporting units that share a sentence with a choosing one.

    Args:
        parts: The choosing and the reporting units of each split.
        texts: The sentences of each unit.
        gold: The units' grades or labels; the reporting ones that remain must differ in them.
        units: The number of units; by default that of `texts`, or one more than the last in `parts`.
        unit: The name of the units.
    """
    if not parts:
        raise InputError("No splits are given; give the choosing and reporting units of one or more")
    taken = [Split(np.asarray(dev, dtype=np.intp), np.asarray(test, dtype=np.intp)) for dev, test in parts]
    last = max(int(side.max(initial=-1)) for part in taken for side in part)
    size = units if units is not None else last + 1 if texts is None else len(texts)
    if last >= size:
        raise InputError(f"A split names unit {last}; the {size} {unit} end at {size - 1}")
    for dev, test in taken:
        shared = np.intersect1d(dev, test)
        if len(shared):
            raise InputError(f"{len(shared)} {unit} both choose and report, {shared[0]} among them; give each one side")
        if min(len(dev), len(test)) < FEWEST:
            raise InputError(
                f"{len(dev)} {unit} choose and {len(test)} report; at least {FEWEST} must choose and as many report"
            )
    if texts is None:
        return Splits(tuple(taken), 0, np.arange(size))
    _check_length("texts", texts, size, unit)
    return _leave_out(taken, texts, connected_groups(size, texts), unit, gold=gold)


def join_splits(tasks: Sequence[Splits], *, texts: Texts | None = None, unit: str = "units") -> Splits:
    """Join the splits of several tasks, whose units are numbered one task after the other.

    `texts` are the sentences of all units: a reporting unit that shares one with a choosing unit of another task is
    left out.
    """
    lengths = {len(splits) for splits in tasks}
    if len(lengths) != 1:
        raise InputError(f"The tasks have {', '.join(map(str, sorted(lengths)))} splits; give all the same number")
    starts = list(accumulate((splits.units for splits in tasks), initial=0))
    parts = [
        Split(*(np.concatenate([side + start for side, start in zip(sides, starts, strict=False)]) for sides in each))
        for each in (tuple(zip(*same, strict=True)) for same in zip(*tasks, strict=True))
    ]
    first = accumulate((int(splits.groups.max(initial=-1)) + 1 for splits in tasks), initial=0)
    groups = np.concatenate([splits.groups + start for splits, start in zip(tasks, first, strict=False)])
    joined = Splits(tuple(parts), 0, groups)
    if texts is not None:
        joined = _leave_out(parts, texts, _groups(starts[-1], texts, groups, unit), unit)
    notes = tuple(dict.fromkeys(note for splits in (*tasks, joined) for note in splits.notes))
    return replace(joined, left_out=joined.left_out + sum(splits.left_out for splits in tasks), notes=notes)


def draw_nested_splits(
    units: int,
    n: int,
    seed: int,
    *,
    test: float,
    inner: int,
    dev: float,
    size: float = 1.0,
    texts: Texts | None = None,
    groups: ArrayLike | None = None,
    unit: str = "rows",
) -> Splits:
    """Draw random splits whose choosing units are divided again, `inner` times, into training and scoring ones.

    Args:
        units: The number of units.
        n: The number of splits.
        seed: The seed of the draws; every split has its own.
        test: The share of the reporting units, rounded up as in scikit-learn.
        inner: The number of folds of a split's choosing units.
        dev: The share of the choosing units that score, rounded up.
        size: The share of the choosing units that are used.
        texts: The sentences of each unit.
        groups: A group of every unit that stays on one side.
        unit: The name of the units.
    """
    check_seed(seed)
    if n < 1 or inner < 1:
        raise InputError(f"{min(n, inner)} splits are not possible; 1 or more are")
    _check_share("test", test)
    connected, parts, folds = _groups(units, texts, groups, unit), [], []
    for number in range(n):
        random = np.random.default_rng([seed, number])
        rest, tested = divide(random.permutation(units), connected, units - math.ceil(test * units))
        rest = rest[: round(size * len(rest))]
        parts.append(Split(rest, tested))
        folds.append(draw_folds(rest, inner, dev, random, groups=connected, unit=unit))
    if min(len(part.test) for part in parts) < 1:
        raise InputError(f"too few {unit}: none of {units} are left to report; give {unit} whose texts do not repeat")
    return Splits(tuple(parts), 0, resampled_groups(connected, texts), folds=tuple(folds))


def draw_folds(
    rest: Rows,
    inner: int,
    dev: float,
    random: np.random.Generator,
    *,
    groups: Rows | None = None,
    unit: str = "rows",
) -> tuple[Fold, ...]:
    """Draw folds of choosing units, with the groups of all units on one side each."""
    _check_share("dev", dev)
    size = len(rest) - math.ceil(dev * len(rest))
    folds = tuple(Fold(*divide(random.permutation(rest), groups, size)) for _ in range(inner))
    fewest = min(len(fold.train) for fold in folds)
    if fewest < 2:
        raise InputError(
            f"too few {unit}: a split leaves {len(rest)} of them to train and to choose by, of which "
            f"{fewest} train; 2 or more must"
        )
    return folds


def divide(order: Rows, groups: Rows | None, size: int) -> tuple[Rows, Rows]:
    """Divide units into about `size` first ones and the rest, with whole groups on one side.

    Groups are taken in the order of their first units, where they fit; without repetitions these are the first units.
    The sizes differ from those asked for by at most half of the smallest group of the rest.
    """
    numbers = order if groups is None else groups[order]
    _, first, inverse, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    if len(first) == len(order):
        return order[:size], order[size:]
    taken, room = np.zeros(len(first), dtype=bool), size
    for group in np.argsort(first):
        if counts[group] <= room:
            taken[group] = True
            room -= counts[group]
    rest = np.flatnonzero(~taken)
    if room and len(rest) > 1:
        smallest = rest[np.lexsort((first[rest], counts[rest]))[0]]
        is_too_few = size - room < min(FEWEST, size)
        taken[smallest] = is_too_few or counts[smallest] - room < room
    is_first = taken[inverse]
    return order[is_first], order[~is_first]


def _leave_out(
    parts: Sequence[Split], texts: Texts, connected: Rows, unit: str, *, gold: ArrayLike | None = None
) -> Splits:
    """Leave out the reporting units that share a sentence with a choosing one."""
    grades, apart, left_out = None if gold is None else np.asarray(gold), [], 0
    for dev, test in parts:
        clean = without_leaks(dev, test, texts)
        left_out += len(test) - len(clean)
        if len(clean) < FEWEST:
            raise InputError(
                f"{len(test) - len(clean)} of {len(test)} reporting {unit} share a sentence with one that chooses and "
                f"are left out; {len(clean)} are too few; give {unit} whose sentences do not repeat, or a task that "
                f"declares dev and test rows"
            )
        if grades is not None and (grades[clean] == grades[clean[0]]).all():
            raise InputError(f"The {len(clean)} reporting {unit} all have the same score; give more {unit}")
        apart.append(Split(dev, clean))
    reporting, largest, notes = sum(len(test) for _, test in parts), int(np.bincount(connected).max()), []
    if left_out:
        notes.append(
            f"{left_out:,} of {reporting:,} reporting {unit} are left out: they share a sentence with one that chooses"
        )
    if largest > len(connected) / 2:
        notes.append(
            f"{largest:,} of {len(connected):,} {unit} are connected by shared sentences, so that no split keeps all "
            f"of them"
        )
    return Splits(tuple(apart), left_out, resampled_groups(connected, texts), tuple(notes))


def _dev_size(units: int, dev: int | float, n: int, seed: int, unit: str) -> int:
    if not np.isfinite(dev) or (dev >= 1 and dev != int(dev)):
        raise InputError(f"{dev} dev {unit} are not possible; give a whole number, or a share below 1")
    check_seed(seed)
    n_dev = round(float(dev) * units) if 0 < dev < 1 else int(dev)
    if n < 1:
        raise InputError(f"{n} splits are not possible; 1 or more are")
    if n_dev < FEWEST or units - n_dev < FEWEST:
        raise InputError(
            f"{units} {unit}, {n_dev} of which choose, are too few: at least {FEWEST} must choose and as many "
            f"must be left to report; give more {unit} or another number of dev {unit}"
        )
    return n_dev


def _groups(units: int, texts: Texts | None, groups: ArrayLike | None, unit: str) -> Rows:
    _check_length("texts", texts, units, unit)
    _check_length("groups", None if groups is None else np.asarray(groups), units, unit)
    return connected_groups(units, texts, groups)


def _check_length(name: str, values: Any, units: int, unit: str) -> None:
    if values is not None and len(values) != units:
        raise InputError(f"{len(values)} {name} for {units} {unit}: the lengths differ")


def _check_share(name: str, share: float) -> None:
    if not 0 < share < 1:
        raise InputError(f"{name} is {share}; it must be a share of the rows, between 0 and 1")


def _is_one_group(groups: Rows, n_dev: int) -> bool:
    """Whether one group holds most of the units and fits into neither side."""
    largest = int(np.bincount(groups).max())
    return largest > len(groups) / 2 and largest > max(n_dev, len(groups) - n_dev)


def _notes_on_groups(groups: Rows, parts: Sequence[Split], n_dev: int, unit: str) -> tuple[str, ...]:
    count, sizes = len(np.unique(groups)), sorted({len(dev) for dev, _ in parts})
    if count == len(groups):
        return ()
    choosing = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    instead = "" if sizes == [n_dev] else f", so that {choosing} {unit} choose instead of {n_dev:,}"
    return (
        f"{len(groups):,} {unit} are {count:,} groups that share sentences, each of which either chooses or "
        f"reports{instead}",
    )
