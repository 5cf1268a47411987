"""Would other pairs have chosen the same layers? Random halves of the pairs choose, and are compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from layerwise.errors import InputError
from layerwise.search.choose import Problems
from layerwise.search.problems import Rows
from layerwise.search.spaces import membership
from layerwise.search.table import ScoreTable

_CANDIDATES = 2**13  # sets, the best by all pairs, among which halves choose: all of them with 13 layers
_SIMILARITIES = 2**24  # of the candidates, in memory at once
_HALVES = 20  # pairs of complementary halves


@dataclass(frozen=True)
class Stability(Mapping[int, float]):
    """How often each layer is chosen by random halves of the pairs: `stability[12]` is layer 12's share.

    `agreement` is how much of two halves' sets is in common (Jaccard), on average over complementary halves.
    """

    shares: tuple[float, ...]
    choices: tuple[tuple[int, ...], ...]
    poolings: Mapping[str, float]
    agreement: float

    def __getitem__(self, layer: int) -> float:
        if layer not in range(len(self.shares)):
            raise KeyError(layer)
        return self.shares[layer]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.shares)))

    def __len__(self) -> int:
        return len(self.shares)


def stability(problems: Problems, table: ScoreTable, *, seed: int = 0) -> Stability:
    """Which layers random halves of the pairs choose (complementary halves, as in stability selection)."""
    size = len(next(iter(problems.values())))
    layers = next(iter(problems.values())).layers
    random = np.random.default_rng(seed)
    halves = []
    for _ in range(_HALVES):
        order = random.permutation(size)
        halves += [order[: size // 2], order[size // 2 : 2 * (size // 2)]]
    rows = _best_rows(table, max(2, min(_CANDIDATES, _SIMILARITIES // size)))
    scores = np.empty((len(halves), len(rows)))
    for pooling, problem in problems.items():
        part = table.rows_of(pooling)
        places = np.flatnonzero((rows >= part.start) & (rows < part.stop))
        if len(places):
            scores[:, places] = problem.redrawn(membership(table.masks[rows[places]], layers), halves)
    winners = [None if np.isnan(row).all() else table.at(int(rows[np.nanargmax(row)])) for row in scores]
    both = [(one, other) for one, other in zip(winners[::2], winners[1::2], strict=True) if one and other]
    if not both:
        raise InputError("Halves of the pairs cannot choose: their scores are all equal; give more pairs")
    chosen = [winner for pair in both for winner in pair]
    shares = tuple(float(np.mean([layer in winner.layers for winner in chosen])) for layer in range(layers))
    agreement = float(np.mean([_overlap(one.layers, other.layers) for one, other in both]))
    poolings = {name: float(np.mean([winner.pooling == name for winner in chosen])) for name in table.poolings}
    return Stability(shares, tuple(winner.layers for winner in chosen), poolings, agreement)


def _overlap(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Layers in both as a share of those in either."""
    return len({*one} & {*other}) / len({*one} | {*other})


def _best_rows(table: ScoreTable, count: int) -> Rows:
    scores = np.where(np.isnan(table.scores), -np.inf, table.scores)
    return np.arange(len(table)) if len(table) <= count else np.sort(np.argpartition(-scores, count)[:count])
