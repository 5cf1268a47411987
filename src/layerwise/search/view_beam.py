"""Beam search over hundreds of views: exact scores of every set that it visits.

A view is one vector per sentence. The cosine of two sums of views follows from three inner products, and a view that
joins the sums adds its self products and its cross products with them, so that all expansions of a set cost one matrix
product per pair. Resamples of the pairs share these products: the cross products of a view are computed once, for the
first greedy search that selects it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.search.metrics import BatchMetric
from layerwise.search.pair_views import PairViews, cosine_from_products
from layerwise.search.problems import Progress, no_progress

Allowed = Callable[[tuple[int, ...]], Sequence[bool] | NDArray[np.bool_]]
PreparedResample = tuple[NDArray[np.intp], BatchMetric]
_CHUNK_ELEMENTS = 2**26  # elements of the expanded sets' products that are scored at once
_PATIENCE = 2  # sizes without a better set after which the search stops


@dataclass(frozen=True)
class _Beam:
    """Sets of one size with the inner products of their sums: (sets, 3, pairs)."""

    sets: list[tuple[int, ...]]
    products: Tensor


class _Expansion(NamedTuple):
    """A set of the beam (its `row`) with one more view."""

    views: tuple[int, ...]
    score: float
    row: int
    added_view: int


def beam_search_views(
    pairs: PairViews,
    metric: BatchMetric,
    *,
    max_views: int = 8,
    width: int = 8,
    allowed: Allowed | None = None,
    progress: Progress = no_progress,
) -> dict[tuple[int, ...], float]:
    """The best sets of each size with their scores; the sets of k views are expanded to those of k + 1.

    Args:
        pairs: The views of the choosing pairs.
        metric: Prepared for these pairs: (sets, pairs) similarities to (sets,) scores.
        max_views: The largest size of a set.
        width: The number of sets kept of each size; 1 is a greedy search.
        allowed: Maps a set to a mask of the views that may join it (views,), such as those within a budget.
        progress: Called with the number of sets just scored.
    """
    self_products = pairs.self_products
    beam = _Beam([()], torch.zeros_like(self_products[None, ..., 0]))
    results: dict[tuple[int, ...], float] = {}
    best, patience = -torch.inf, _PATIENCE
    for _ in range(min(max_views, self_products.shape[-1])):
        products = _expand(beam, pairs)
        scores = _score_expansions(products, metric)
        if beam.sets == [()]:
            scores = pairs.mask_negatives(scores)
        for row, views in enumerate(beam.sets):
            scores[row, [*views, *pairs.cancelling(views)]] = -torch.inf
            if allowed is not None:
                scores[row, ~torch.as_tensor(allowed(views), dtype=torch.bool)] = -torch.inf
        progress(scores.numel())
        expansions = _top_expansions(beam.sets, scores, width)
        if not expansions:
            break
        results |= {expansion.views: expansion.score for expansion in expansions}
        top = expansions[0].score
        patience, best = (_PATIENCE, top) if top > best else (patience - 1, best)
        if not patience:
            break
        rows, added_views = [e.row for e in expansions], [e.added_view for e in expansions]
        beam = _Beam([e.views for e in expansions], products[rows, ..., added_views])
    return results


def bagged_views(
    views: PairViews,
    prepare: Callable[[NDArray[np.intp]], PreparedResample | None],
    *,
    n_resamples: int,
    max_views: int,
    allowed: Sequence[bool] | NDArray[np.bool_],
    seed: int,
    progress: Progress = no_progress,
) -> dict[int, int]:
    """How many resamples of the pairs select each view, by one greedy search per resample.

    Views selected only once are dropped as chance, unless no view is selected more often.

    Args:
        views: The views of the choosing pairs.
        prepare: Maps the drawn rows to the rows that are used and a metric prepared for them; None if their grades are
            constant, which skips the resample.
        n_resamples: The number of resamples.
        max_views: The largest size of a set.
        allowed: A mask of the views that may be selected: (views,)
        seed: Of the resamples.
        progress: Called with the number of sets just scored.
    """
    random = np.random.default_rng(seed)
    drawn = [random.integers(len(views.left), size=len(views.left)) for _ in range(n_resamples)]
    prepared = [resample for resample in map(prepare, drawn) if resample is not None]
    counts: dict[int, int] = {}
    for best in greedy_sets(views, prepared, max_views=max_views, allowed=allowed, progress=progress):
        for view in best:
            counts[view] = counts.get(view, 0) + 1
    repeated = {view: count for view, count in counts.items() if count > 1}
    return dict(sorted((repeated or counts).items()))


def greedy_sets(
    views: PairViews,
    prepared: Sequence[PreparedResample],
    *,
    max_views: int,
    allowed: Sequence[bool] | NDArray[np.bool_],
    progress: Progress = no_progress,
) -> list[tuple[int, ...]]:
    """The views that each of several selections of the pairs chooses, by greedy searches that share their products.

    `prepared` has the rows of each selection, and the metric prepared for them.
    """
    places = np.flatnonzero(allowed)
    candidates = views if len(places) == len(views) else views.pick(places)
    self_products, cross_products = (
        candidates.self_products,
        cache(lambda view: candidates.cross_products([(view,)])[0]),
    )
    searches = [
        _GreedySearch(torch.from_numpy(rows).to(self_products.device), metric, self_products)
        for rows, metric in prepared
    ]
    for _ in range(min(max_views, len(places))):
        active = [search for search in searches if search.patience]
        if active:
            _step(active, candidates, cross_products, progress)
    return [tuple(int(places[view]) for view in search.best) for search in searches]


@dataclass(eq=False)
class _GreedySearch:
    """A greedy search on the rows of a resample, equal to `beam_search_views` of width 1.

    `products` are the inner products of the current set's sums (3, pairs, 1), `expanded` those with each view added
    (3, pairs, views).
    """

    rows: Tensor
    metric: BatchMetric
    expanded: Tensor
    products: Tensor | float = 0.0
    last_added: int | None = None
    views: tuple[int, ...] = ()
    best: tuple[int, ...] = ()
    best_score: float = -torch.inf
    patience: int = _PATIENCE

    def scores(self) -> Tensor:
        """The score of the current set with each view added: (views,)"""
        return self.metric(cosine_from_products(self.expanded[:, self.rows].double().unbind()).mT.contiguous())

    def update_products(self, cross_products: Callable[[int], Tensor]) -> None:
        """Include the view that was added last."""
        if self.last_added is not None:
            products = self.expanded[..., self.last_added : self.last_added + 1]
            self.expanded = self.expanded + (products - self.products) + cross_products(self.last_added)
            self.products = products

    def add_best(self, scores: Tensor) -> None:
        """Add the view with the highest score."""
        scores[list(self.views)] = -torch.inf
        view = int(scores.argmax())
        if scores[view] == -torch.inf:
            self.patience = 0
            return
        self.views, self.last_added = tuple(sorted((*self.views, view))), view
        if scores[view] > self.best_score:
            self.best, self.best_score, self.patience = self.views, float(scores[view]), _PATIENCE
        else:
            self.patience -= 1


def _step(
    searches: Sequence[_GreedySearch],
    views: PairViews,
    cross_products: Callable[[int], Tensor],
    progress: Progress,
) -> None:
    """Add one view to the set of each search."""
    for search in searches:
        search.update_products(cross_products)
    all_scores = torch.stack([search.scores() for search in searches])
    for search, scores in zip(searches, torch.nan_to_num(all_scores, nan=-torch.inf).cpu(), strict=True):
        scores[views.cancelling(search.views)] = -torch.inf
        search.add_best(scores if search.views else views.mask_negatives(scores))
        progress(len(scores))


def _expand(beam: _Beam, pairs: PairViews) -> Tensor:
    """The inner products of every set's sums with each view added: (sets, 3, pairs, views)"""
    if beam.sets == [()]:
        return pairs.self_products[None]
    return beam.products.unsqueeze(-1) + pairs.cross_products(beam.sets) + pairs.self_products


def _score_expansions(products: Tensor, metric: BatchMetric) -> Tensor:
    """The scores of expanded sets: (sets, views); -inf where all pairs are equally similar."""
    chunk = max(1, _CHUNK_ELEMENTS // products[0].numel())
    scores = []
    for start in range(0, len(products), chunk):
        cosines = cosine_from_products(products[start : start + chunk].double().unbind(1))  # (sets, pairs, views)
        scores.append(metric(cosines.mT.flatten(0, 1).contiguous()))
    return torch.nan_to_num(torch.cat(scores), nan=-torch.inf).view(len(products), -1).cpu()


def _top_expansions(sets: Sequence[tuple[int, ...]], scores: Tensor, width: int) -> list[_Expansion]:
    """The best different expansions (sets, views); the first of equal ones."""
    top: dict[tuple[int, ...], _Expansion] = {}
    count = min(scores.numel(), width * len(sets) + width)  # a set of k views may be an expansion of k sets
    for place in torch.sort(scores.flatten(), descending=True, stable=True).indices[:count].tolist():
        row, view = divmod(place, scores.shape[1])
        views, score = tuple(sorted((*sets[row], view))), float(scores[row, view])
        if score > -torch.inf and len(top) < width:
            top.setdefault(views, _Expansion(views, score, row, view))
    return list(top.values())
