"""Beam search over hundreds of views: exact scores of every set that it looks at.

A view is one vector a sentence. The cosine of two summed sets grows with each view by products of the new view with the
sums so far, so that all sets of one view more cost one matrix product for each pair. Resamples of the pairs need no
products of their own: what a view adds is worked out once, for the first of their greedy searches that takes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.search.metrics import BatchMetric
from layerwise.search.pair_views import PairViews, cosine_of
from layerwise.search.problems import Progress, no_progress

Fits = Callable[[tuple[int, ...]], Sequence[bool] | NDArray[np.bool_]]
Prepared = tuple[NDArray[np.intp], BatchMetric]
_AT_ONCE = 2**26  # numbers of grown sets in memory
_PATIENCE = 2  # sizes without a better set, after which larger ones are not tried


@dataclass(frozen=True)
class _Beam:
    """Some sets of one size, with the products of their sums: (sets, 3, pairs)."""

    views: list[tuple[int, ...]]
    sums: Tensor


def beam_search_views(
    pairs: PairViews,
    metric: BatchMetric,
    *,
    most: int = 8,
    width: int = 8,
    fits: Fits | None = None,
    progress: Progress = no_progress,
) -> dict[tuple[int, ...], float]:
    """The best sets of each size, with their scores: those of k views give those of k + 1.

    Args:
        pairs: The views of the pairs that choose.
        metric: Prepared for these pairs: (sets, pairs) similarities to (sets,) scores.
        most: Views in a set.
        width: Sets that are kept of each size; 1 is greedy.
        fits: For a set, which views may come to it (views,), such as those that do not cost too much.
        progress: Called with the number of sets just scored.
    """
    own = pairs.own
    beam = _Beam([()], torch.zeros_like(own[None, ..., 0]))
    found: dict[tuple[int, ...], float] = {}
    best, patience = -torch.inf, _PATIENCE
    for _ in range(min(most, own.shape[-1])):
        sums = _grown(beam, pairs)
        scores = _scores(sums, metric)
        if beam.views == [()]:
            scores = pairs.taken_first(scores)
        for row, views in enumerate(beam.views):
            scores[row, [*views, *pairs.leaving_nothing(views)]] = -torch.inf
            if fits is not None:
                scores[row, ~torch.as_tensor(fits(views), dtype=torch.bool)] = -torch.inf
        progress(scores.numel())
        grown = _best_different(beam.views, scores, width)
        if not grown:
            break
        found |= {views: score for views, score, _, _ in grown}
        top = grown[0][1]
        patience, best = (_PATIENCE, top) if top > best else (patience - 1, best)
        if not patience:
            break
        places = [row for _, _, row, _ in grown], [view for _, _, _, view in grown]
        beam = _Beam([views for views, _, _, _ in grown], sums[places[0], ..., places[1]])
    return found


def bagged_views(
    views: PairViews,
    prepare: Callable[[NDArray[np.intp]], Prepared | None],
    *,
    bags: int,
    most: int,
    usable: Sequence[bool] | NDArray[np.bool_],
    seed: int,
    progress: Progress = no_progress,
) -> dict[int, int]:
    """How many of some resamples of the pairs choose each view, by greedy searches.

    A view that only one of them chose was chosen by chance, and is left out where there are others. `prepare` gives the
    metric of rows that a resample drew and the rows that it takes, or None where their grades are all the same and it
    chooses nothing; `usable` says which views may be taken.
    """
    random, places = np.random.default_rng(seed), np.flatnonzero(usable)
    drawn = [random.integers(len(views.left), size=len(views.left)) for _ in range(bags)]
    prepared = filter(None, map(prepare, drawn))
    usable_views = views if len(places) == len(views) else views.pick(places)
    own, added = usable_views.own, cache(lambda view: usable_views.added([(view,)])[0])
    searches = [_Resample(torch.from_numpy(rows).to(own.device), metric, own) for rows, metric in prepared]
    for _ in range(min(most, len(places))):
        growing = [search for search in searches if search.patience]
        if growing:
            _grow_resamples(growing, usable_views, added, progress)
    counts: dict[int, int] = {}
    for search in searches:
        for view in search.best:
            counts[int(places[view])] = counts.get(int(places[view]), 0) + 1
    repeated = {view: count for view, count in counts.items() if count > 1}
    return dict(sorted((repeated or counts).items()))


@dataclass(eq=False)
class _Resample:
    """A greedy search on some rows of the pairs: as `beam_search_views` of width 1.

    `sums` are the products of its views' sums (3, pairs, 1), `grown` those with each view added (3, pairs, views).
    """

    rows: Tensor
    metric: BatchMetric
    grown: Tensor
    sums: Tensor | float = 0.0
    latest: int | None = None
    views: tuple[int, ...] = ()
    best: tuple[int, ...] = ()
    score: float = -torch.inf
    patience: int = _PATIENCE

    def scores(self) -> Tensor:
        """Of every view with the views that it has: (views,)"""
        return self.metric(cosine_of(self.grown[:, self.rows].double().unbind()).mT.contiguous())

    def grow(self, added: Callable[[int], Tensor]) -> None:
        """Bring the products up to the view that was taken last; `added` says what one adds, beside its own."""
        if self.latest is not None:
            sums = self.grown[..., self.latest : self.latest + 1]
            self.grown, self.sums = self.grown + (sums - self.sums) + added(self.latest), sums

    def take(self, scores: Tensor) -> None:
        """Take the best of all views."""
        scores[list(self.views)] = -torch.inf
        view = int(scores.argmax())
        if scores[view] == -torch.inf:
            self.patience = 0
            return
        self.views, self.latest = tuple(sorted((*self.views, view))), view
        if scores[view] > self.score:
            self.best, self.score, self.patience = self.views, float(scores[view]), _PATIENCE
        else:
            self.patience -= 1


def _grow_resamples(
    searches: Sequence[_Resample], views: PairViews, added: Callable[[int], Tensor], progress: Progress
) -> None:
    """One view more for each."""
    for search in searches:
        search.grow(added)
    scores = torch.stack([search.scores() for search in searches])
    for search, own in zip(searches, torch.nan_to_num(scores, nan=-torch.inf).cpu(), strict=True):
        own[views.leaving_nothing(search.views)] = -torch.inf
        search.take(own if search.views else views.taken_first(own))
        progress(len(own))


def _grown(beam: _Beam, pairs: PairViews) -> Tensor:
    """The products of every set's sums with each view added: (sets, 3, pairs, views)"""
    if beam.views == [()]:
        return pairs.own[None]
    return beam.sums.unsqueeze(-1) + pairs.added(beam.views) + pairs.own


def _scores(sums: Tensor, metric: BatchMetric) -> Tensor:
    """The scores of grown sets: (sets, views); -inf where all pairs are equally similar."""
    at_once = max(1, _AT_ONCE // sums[0].numel())
    scores = []
    for start in range(0, len(sums), at_once):
        cosines = cosine_of(sums[start : start + at_once].double().unbind(1)).mT.flatten(0, 1)  # (sets x views, pairs)
        scores.append(metric(cosines.contiguous()))
    return torch.nan_to_num(torch.cat(scores), nan=-torch.inf).view(len(sums), -1).cpu()


def _best_different(sets: Sequence[tuple[int, ...]], scores: Tensor, width: int) -> list["_Grown"]:
    """The best sets of one view more, none of them twice; of equal ones the first."""
    grown: dict[tuple[int, ...], _Grown] = {}
    count = min(scores.numel(), width * len(sets) + width)  # each may come from as many sets as it has views
    for place in torch.sort(scores.flatten(), descending=True, stable=True).indices[:count].tolist():
        row, view = divmod(place, scores.shape[1])
        views, score = tuple(sorted((*sets[row], view))), float(scores[row, view])
        if score > -torch.inf and len(grown) < width:
            grown.setdefault(views, (views, score, row, view))
    return list(grown.values())


_Grown = tuple[tuple[int, ...], float, int, int]  # a set, its score, the row of the smaller set and the view added
