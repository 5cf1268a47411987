"""The problems of a search, such as pairs with a metric, on which the search, its statistics and ablations work.

`scan` scores every set of a space: the walks of a source run in parallel on the cores, or one by one on a GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError
from layerwise.search.metrics import BatchMetric, Gold, Metric, counts_of
from layerwise.search.sources import PairSource, Source, Walk
from layerwise.search.spaces import Masks, Space
from layerwise.threads import share

Progress = Callable[[int], None]
Scores = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]
Weights = NDArray[np.floating[Any]]
RANDOM_STARTS = 10  # random seeds over which a score that depends on one is averaged and resampled
_CHUNK_ELEMENTS = 2**23  # similarities in memory when single sets are scored
_MAX_COUNTED = 16  # sets up to which resamples are scored by counts
_BLOCK = 2**16  # similarities that a metric gets at once, to fit in a core's cache


def no_progress(_sets: int) -> None:
    """Ignore progress."""


class SetProblem(Protocol):
    """Scores weights of layers, on all of its pairs (or queries) or on a subset."""

    @property
    def scans_fast(self) -> bool:
        """Whether all sets of a space are scored at once, not embedded one by one."""

    @property
    def starts(self) -> int:
        """The number of random seeds over which a score is averaged; 1 where none matters."""

    @property
    def is_mean(self) -> bool:
        """Whether a score is a mean over units of values from 0 to 1."""

    @property
    def layers(self) -> int:
        """The number of layers."""

    def __len__(self) -> int: ...

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Score every set of a space."""

    def scores(self, weights: Weights) -> Scores:
        """Scores of any weights or sets: (rows, layers) -> (rows,)"""

    def pick(self, rows: Rows) -> "SetProblem":
        """The problem on a subset of the pairs."""

    def check(self) -> None:
        """Refuse what no metric can score, such as constant labels."""

    def redrawn(self, weights: Weights, draws: Sequence[Rows]) -> Scores:
        """Scores on resamples of the pairs: (rows, layers), draws of pairs -> (draws, rows)"""


@dataclass(frozen=True)
class PairProblem:
    """Graded or labelled pairs."""

    scans_fast: ClassVar[bool] = True
    starts: ClassVar[int] = 1
    is_mean: ClassVar[bool] = False

    source: PairSource
    gold: Gold
    metric: Metric

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.source.layers

    def __len__(self) -> int:
        return len(self.gold)

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Score every set of a space."""
        return scan(self.source, self.metric(self.gold, self.source.device), space, progress=progress)

    def scores(self, weights: Weights) -> Scores:
        """Scores of any weights or sets: (rows, layers) -> (rows,)"""
        metric = self.metric(self.gold, self.source.device)
        return torch.cat([metric(self.source.similarities(part)).cpu() for part in self._rows(weights)]).numpy()

    def pick(self, rows: Rows) -> "PairProblem":
        """The problem on a subset of the pairs."""
        return PairProblem(self.source.pick(rows), self.gold[rows], self.metric)

    def check(self) -> None:
        """Refuse pairs whose scores are all the same."""
        if np.ptp(self.gold) == 0:
            raise InputError(
                f"A split's {len(self)} pairs all have the score {self.gold[0]:g}: constant scores say nothing about "
                f"layers; give more pairs, or more of them to this side of the split"
            )

    def redrawn(self, weights: Weights, draws: Sequence[Rows]) -> Scores:
        """Scores on resamples of the pairs; NaN for a resample with constant grades."""
        similarities = torch.cat([self.source.similarities(part).cpu() for part in self._rows(weights)])
        if self.metric.redraw is not None and len(weights) <= _MAX_COUNTED:
            return self._redrawn_by_counts(similarities.numpy(), draws)
        scores = np.full((len(draws), len(weights)), np.nan)

        def work(number: int) -> None:
            draw = draws[number]
            gold = self.gold[draw]
            if len(draw) > 1 and np.ptp(gold) > 0:
                metric, picked = self.metric(gold), torch.from_numpy(draw)
                blocks = torch.split(similarities, max(1, _BLOCK // len(draw)))
                scores[number] = torch.cat([metric(block[:, picked]) for block in blocks]).numpy()

        share(range(len(draws)), work)
        return scores

    def _redrawn_by_counts(self, similarities: Weights, draws: Sequence[Rows]) -> Scores:
        redraw, size = self.metric.redraw, max(1, _BLOCK // len(self))
        if redraw is None:
            raise TypeError(f"{self.metric.name} has no fast way")
        scores = []
        for start in range(0, len(draws), size):
            counts = counts_of(draws[start : start + size], len(self))
            drawn = np.flatnonzero(counts.any(axis=0))  # often only some of the pairs
            counts, gold = counts[:, drawn], self.gold[drawn]
            scores.append(np.stack([redraw(row[drawn], gold, counts) for row in similarities], axis=1))
        return np.concatenate(scores)

    def _rows(self, weights: Weights) -> Sequence[Tensor]:
        """Weights on the source's device, in parts whose similarities fit into memory."""
        rows = torch.from_numpy(np.asarray(weights, dtype=np.float64)).to(self.source.device)
        return torch.split(rows, max(1, _CHUNK_ELEMENTS // len(self)))


def scan(
    source: Source, metric: BatchMetric, space: Space, *, progress: Progress = no_progress
) -> tuple[Masks, Scores]:
    """All sets of a space with their scores, in an order that does not depend on the number of cores."""
    space.count(source.layers)  # a space without members is refused
    results: dict[int, tuple[Masks, Scores]] = {}
    lock = Lock()

    def work(task: tuple[int, Walk]) -> None:
        number, walk = task
        masks, scores = _score_walk(walk, metric)
        with lock:
            results[number] = masks, scores
            progress(len(masks))

    tasks = enumerate(source.sweep(space))
    if source.device.type == "cpu":
        share(tasks, work)
    else:
        for task in tasks:
            work(task)
    parts = [results[number] for number in sorted(results)]
    return np.concatenate([masks for masks, _ in parts]), np.concatenate([scores for _, scores in parts])


def _score_walk(walk: Walk, metric: BatchMetric) -> tuple[Masks, Scores]:
    pieces = [(masks, metric(similarities)) for masks, similarities in walk()]
    if not pieces:
        return np.zeros(0, dtype=np.uint64), np.zeros(0)
    scores = torch.cat([score for _, score in pieces]).cpu().numpy()
    return np.concatenate([masks for masks, _ in pieces]), scores
