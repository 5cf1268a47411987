"""Clustering, reranking, few-shot classification and other kinds as problems of a search, by the task's metric.

These metrics have no fast form for all sets at once, so each set is embedded and scored as by `evaluate`. Outcomes are
cached, so that resamples and random halves cost nothing more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional as F

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds import Outcome, Problem
from layerwise.metrics import Redraw, redraw_mean
from layerwise.mixes import Mean
from layerwise.search.metrics import counts_of
from layerwise.search.problems import RANDOM_STARTS, Progress, Rows, Scores, Weights, no_progress
from layerwise.search.spaces import Masks, Space, membership

_PERCENT = 100  # figures are percentages
_MAX_CACHED = 2**26  # elements of cached outcomes
_CHUNK_ELEMENTS = 2**22  # elements of the resamples that are scored at once


@dataclass(frozen=True, eq=False)
class KindProblem:
    """A task with the views of one token pooling; scores are from 0 to 1.

    Args:
        task: A task of one of the kinds of `layerwise.kinds`.
        views: The views of the task's texts by role: (texts, layers, width).
        metric: The name of the figure that sets are scored by.
        normalize: Whether embeddings are normalised to length 1, as the model does.
    """

    scans_fast: ClassVar[bool] = False

    task: Problem
    views: Mapping[str, Array]
    metric: str
    normalize: bool = False
    _outcomes: dict[bytes, Outcome] = field(default_factory=dict, repr=False)
    _parts: dict[bytes, "KindProblem"] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for role, views in self.views.items():
            if not np.isfinite(views).all():
                row = int(np.flatnonzero(~np.isfinite(views).all((1, 2)))[0])
                text = self.task.texts[role][row]
                raise InputError(f"the views of {text[:60]!r} hold NaN or infinite numbers; check the weights")

    @property
    def is_mean(self) -> bool:
        """Whether the metric is a mean over its units."""
        return self.redraw is redraw_mean

    @property
    def starts(self) -> int:
        """`RANDOM_STARTS` where the score depends on a random seed."""
        return RANDOM_STARTS if len(self.task.reseeded(RANDOM_STARTS)) > 1 else 1

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(next(iter(self.views.values())).shape[1])

    def __len__(self) -> int:
        return len(self.task)

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Score every set of a space, one by one."""
        space.count(self.layers)
        masks, scores = [], []
        for block in space.masks(self.layers, 1):
            masks.append(block)
            scores.append(self.scores(membership(block, self.layers)))
            progress(1)
        return np.concatenate(masks), np.concatenate(scores)

    def scores(self, weights: Weights) -> Scores:
        """Scores of sets, given as rows of 0 and one other weight: (rows, layers) -> (rows,)"""
        return np.array([self._outcome(row).figures[self.metric] / _PERCENT for row in np.asarray(weights)])

    def pick(self, rows: Rows) -> "KindProblem":
        """The problem on a subset of the rows or queries, in their order; cached with its outcomes."""
        units = np.unique(rows)
        if len(units) == len(self):
            return self
        key = units.astype("<i8").tobytes()
        if key not in self._parts:
            self._parts[key] = KindProblem(self.task.pick(units), self.views, self.metric, self.normalize)
        return self._parts[key]

    def check(self) -> None:
        """Do nothing: a subset that cannot be scored is refused by `pick`."""

    def redrawn(self, weights: Weights, draws: Sequence[Rows]) -> Scores:
        """Scores on resamples of the rows or queries: (rows, layers), draws -> (draws, rows)

        Only rows that were drawn at least once are scored. A single set on many resamples is scored with several random
        seeds, if the task depends on one, so that intervals include that variance.
        """
        units = np.unique(np.concatenate(draws))
        part = self.pick(units)
        part_draws = [np.searchsorted(units, draw) for draw in draws]
        sets = np.asarray(weights)
        several_seeds = len(sets) == 1 and len(draws) >= RANDOM_STARTS**2
        variants = part.task.reseeded(RANDOM_STARTS if several_seeds else 1)
        scores = np.empty((len(draws), len(sets)))
        for column, row in enumerate(sets):
            for number, variant in enumerate(variants):
                outcome = part._outcome(row) if variant is part.task else variant.score(part._embed(row))
                variant_draws = part_draws[number :: len(variants)]
                scores[number :: len(variants), column] = self._resampled(outcome, variant_draws, len(units))
        return scores

    @property
    def redraw(self) -> Redraw:
        """The function that computes the metric on resamples."""
        declaration = self.task.task.declaration
        redraw = declaration.redraw(self.metric)
        if redraw is None:
            known = ", ".join(name for name, known in declaration.metrics.items() if known)
            raise InputError(f"{self.metric} cannot be resampled, so layers are not searched by it; take {known}")
        return redraw

    def _resampled(self, outcome: Outcome, draws: Sequence[Rows], size: int) -> Scores:
        chunk_size = max(1, _CHUNK_ELEMENTS // size)
        parts = []
        for start in range(0, len(draws), chunk_size):
            chunk = draws[start : start + chunk_size]
            not_empty = np.array([len(draw) > 0 for draw in chunk])
            with np.errstate(invalid="ignore", divide="ignore"):
                scores = self.redraw(outcome.items, outcome.gold, counts_of(chunk, size))
            parts.append(np.where(not_empty, scores, np.nan))
        return np.concatenate(parts) if parts else np.empty(0)

    def _outcome(self, row: Weights) -> Outcome:
        key = np.flatnonzero(row).astype("<i8").tobytes()
        if key in self._outcomes:
            return self._outcomes[key]
        outcome = self.task.score(self._embed(row))
        if len(outcome.items) != len(self):
            raise InputError(f"{self.metric} of this task has no scores of single {self.task.unit} to resample")
        if len(self) * len(self._outcomes) < _MAX_CACHED:
            self._outcomes[key] = outcome
        return outcome

    def _embed(self, row: Weights) -> dict[str, Array]:
        """The embeddings of all texts by a set of layers, as a model computes them, by role: (texts, width)"""
        layers = np.flatnonzero(row)
        if np.ptp(row[layers]):
            raise InputError(f"layer weights are searched for pairs with scores; {self.metric} takes sets of layers")
        mix = Mean.of(*layers.tolist())
        vectors = {role: np.ascontiguousarray(mix(views), dtype=np.float32) for role, views in self.views.items()}
        if not self.normalize:
            return vectors
        return {role: F.normalize(torch.from_numpy(rows), dim=-1).numpy() for role, rows in vectors.items()}
