"""Beam search over hundreds of views: exact scores of every set that it looks at.

A view is one vector a sentence. The cosine of two summed sets grows with each view by products of the new view with the
sums so far, so that all sets of one view more cost one matrix product for each pair. Resamples of the pairs need no
products of their own: what a view adds is worked out once, for the first of their greedy searches that takes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError
from layerwise.search.metrics import BatchMetric
from layerwise.search.problems import Progress, no_progress
from layerwise.threads import small_products

Fits = Callable[[tuple[int, ...]], Sequence[bool] | NDArray[np.bool_]]
_AT_ONCE = 2**26  # numbers of grown sets in memory
_PATIENCE = 2  # sizes without a better set, after which larger ones are not tried


@dataclass(frozen=True, eq=False)
class PairViews:
    """The views of pairs, left and right: (pairs, columns, width).

    `columns` says which column each view is: n for column n, ~n for its negative; None where every column is a view. A
    set does not begin with a negative, for a view and its negative say the same alone.
    """

    left: Tensor
    right: Tensor
    columns: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape or self.left.ndim != 3:
            raise InputError(f"The two sides' views differ: {tuple(self.left.shape)} and {tuple(self.right.shape)}")

    def __len__(self) -> int:
        return self.left.shape[1] if self.columns is None else len(self.columns)

    @cached_property
    def own(self) -> Tensor:
        """Of each view alone: left with right, left with left, right with right. (3, pairs, views)"""
        sides = ((self.left, self.right), (self.left, self.left), (self.right, self.right))
        products = torch.stack([(one * other).sum(-1) for one, other in sides])
        return products if self.columns is None else products[..., self._places]

    def added(self, sets: Sequence[tuple[int, ...]]) -> Tensor:
        """What each view adds to these products of a set's sums, beside its own. (sets, 3, pairs, views)"""
        left, right = (torch.stack([self._sum(side, views) for views in sets], 1) for side in (self.left, self.right))
        with small_products():
            crossed = left @ self.right.mT + right @ self.left.mT  # (pairs, sets, columns)
            products = torch.stack([crossed, 2 * (left @ self.left.mT), 2 * (right @ self.right.mT)], 1)
        if self.columns is not None:
            products = products[..., self._places] * self._signs
        return products.movedim(2, 0).movedim(2, 1)

    def pick(self, views: Sequence[int] | NDArray[np.intp] | slice) -> "PairViews":
        """Some of the views; of a slice of columns there is no copy."""
        some = views if isinstance(views, slice) else list(views)
        if self.columns is None:
            return PairViews(self.left[:, some], self.right[:, some])
        columns = self.columns[some]
        used, places = np.unique(np.where(columns < 0, ~columns, columns), return_inverse=True)
        return PairViews(self.left[:, used], self.right[:, used], np.where(columns < 0, ~places, places))

    def cosines(self, views: Sequence[int], weights: Sequence[float] | None = None) -> Tensor:
        """Of the sums of some views, each so many times: (pairs,)"""
        counts = torch.tensor(weights or [1.0] * len(views), dtype=torch.float64, device=self.left.device)
        left, right = (self._sum(side, views, counts) for side in (self.left, self.right))
        return _cosine([(left * right).sum(1), left.square().sum(1), right.square().sum(1)])

    def taken_first(self, scores: Tensor) -> Tensor:
        """The scores (..., views) of single views, -inf for those that no set begins with."""
        return scores if self.columns is None else scores.masked_fill(self._signs.cpu() < 0, -torch.inf)

    def _sum(self, side: Tensor, views: Sequence[int], counts: Tensor | None = None) -> Tensor:
        """Some views of a side added up, each so many times: (pairs, width)"""
        places = list(views) if self.columns is None else self._places[list(views)]
        picked = side[:, places] if counts is None else side[:, places].to(counts.dtype) * counts[:, None]
        return (picked if self.columns is None else picked * self._signs[list(views), None]).sum(1)

    @cached_property
    def _places(self) -> Tensor:
        """The column of each view, or of what it is the negative of: (views,)"""
        columns = torch.as_tensor(self.columns, device=self.left.device)
        return torch.where(columns < 0, ~columns, columns)

    @cached_property
    def _signs(self) -> Tensor:
        """1, or -1 for a negative: (views,)"""
        return torch.where(torch.as_tensor(self.columns, device=self.left.device) < 0, -1.0, 1.0).to(self.left.dtype)


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
            scores[row, list(views)] = -torch.inf
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
    prepare: Callable[[NDArray[np.intp]], BatchMetric | None],
    *,
    bags: int,
    most: int,
    usable: Sequence[bool] | NDArray[np.bool_],
    seed: int,
    progress: Progress = no_progress,
) -> dict[int, int]:
    """How many of some resamples of the pairs choose each view, by greedy searches.

    A view that only one of them chose was chosen by chance, and is left out where there are others. `prepare` gives the
    metric of some rows of the pairs, or None where their grades are all the same and such a resample chooses nothing;
    `usable` says which views may be taken.
    """
    random, places = np.random.default_rng(seed), np.flatnonzero(usable)
    drawn = [random.integers(len(views.left), size=len(views.left)) for _ in range(bags)]
    prepared = [(rows, prepare(rows)) for rows in drawn]
    usable_views = views if len(places) == len(views) else views.pick(places)
    own, added = usable_views.own, cache(lambda view: usable_views.added([(view,)])[0])
    searches = [_Resample(torch.from_numpy(rows).to(own.device), metric, own) for rows, metric in prepared if metric]
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
        return self.metric(_cosine(self.grown[:, self.rows].double().unbind()).mT.contiguous())

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
        cosines = _cosine(sums[start : start + at_once].double().unbind(1)).mT.flatten(0, 1)  # (sets x views, pairs)
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


def _cosine(sums: Sequence[Tensor] | Tensor) -> Tensor:
    return sums[0] / (sums[1] * sums[2]).clamp_min(1e-30).sqrt()


_Grown = tuple[tuple[int, ...], float, int, int]  # a set, its score, the row of the smaller set and the view added
