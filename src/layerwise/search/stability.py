"""Stability selection: how often random halves of the pairs choose the same layers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from layerwise.errors import InputError
from layerwise.search.choose import Problems
from layerwise.search.problems import Rows
from layerwise.search.spaces import membership
from layerwise.search.table import ScoreTable

_MAX_CANDIDATES = 2**13  # best sets by all pairs among which halves choose: all sets of 13 layers
_MAX_SIMILARITIES = 2**24  # of the candidates, in memory at once
_N_SPLITS = 20  # into complementary halves


@dataclass(frozen=True)
class Stability(Mapping[int, float]):
    """The share of random halves of the pairs that choose each layer, such as `stability[12]`.

    `agreement` is the Jaccard index of the sets of two complementary halves, on average.
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
    for _ in range(_N_SPLITS):
        order = random.permutation(size)
        halves += [order[: size // 2], order[size // 2 : 2 * (size // 2)]]
    rows = _best_rows(table, max(2, min(_MAX_CANDIDATES, _MAX_SIMILARITIES // size)))
    scores = np.empty((len(halves), len(rows)))
    for pooling, problem in problems.items():
        part = table.rows_of(pooling)
        places = np.flatnonzero((rows >= part.start) & (rows < part.stop))
        if len(places):
            scores[:, places] = problem.redrawn(membership(table.masks[rows[places]], layers), halves)
    winners = [None if np.isnan(row).all() else table.at(int(rows[np.nanargmax(row)])) for row in scores]
    pairs = [(first, second) for first, second in zip(winners[::2], winners[1::2], strict=True) if first and second]
    if not pairs:
        raise InputError("Halves of the pairs cannot choose: their scores are all equal; give more pairs")
    chosen = [winner for pair in pairs for winner in pair]
    shares = tuple(float(np.mean([layer in winner.layers for winner in chosen])) for layer in range(layers))
    agreement = float(np.mean([_jaccard(first.layers, second.layers) for first, second in pairs]))
    poolings = {name: float(np.mean([winner.pooling == name for winner in chosen])) for name in table.poolings}
    return Stability(shares, tuple(winner.layers for winner in chosen), poolings, agreement)


def _jaccard(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    return len({*left} & {*right}) / len({*left} | {*right})


def _best_rows(table: ScoreTable, count: int) -> Rows:
    scores = np.where(np.isnan(table.scores), -np.inf, table.scores)
    return np.arange(len(table)) if len(table) <= count else np.sort(np.argpartition(-scores, count)[:count])
