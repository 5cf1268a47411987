"""Stability of a search of views: how often random halves of the choosing pairs choose the same views.

As for layers (`stability`), the halves are complementary. Each chooses by a greedy search.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.mixes import Mean
from layerwise.search.pair_views import cosine_from_products
from layerwise.search.view_beam import PreparedResample, greedy_sets
from layerwise.search.view_candidates import Candidates, CostLimits, View
from layerwise.search.view_choice import SetSearch

_N_SPLITS = 10  # into complementary halves
_MAX_CANDIDATES = 64  # best single views by all choosing pairs among which halves choose, beside the best set's


@dataclass(frozen=True)
class ViewStability:
    """The share of random halves of the choosing pairs that choose each view and each pooling, most often first.

    `agreement` is the Jaccard index of the views of two complementary halves, on average.
    """

    views: Mapping[str, float]
    poolings: Mapping[str, float]
    agreement: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"views": dict(self.views), "poolings": dict(self.poolings), "agreement": self.agreement}


def view_stability(candidates: Candidates, best: Mean, search: SetSearch) -> ViewStability:
    """Which views random halves of the choosing pairs choose.

    They choose among the best set's views and the best single ones; if the search has limits, only among views that
    need no passes or blocks beyond the best set's.
    """
    random, size = np.random.default_rng(search.seed), len(candidates.gold)
    halves = list[PreparedResample]()
    for _ in range(_N_SPLITS):
        order = random.permutation(size)
        pair = order[: size // 2], order[size // 2 : 2 * (size // 2)]
        if all(np.ptp(candidates.gold[rows]) for rows in pair):
            halves += [(rows, search.metric(candidates.gold[rows], search.device)) for rows in pair]
    sets = greedy_sets(
        candidates.views,
        halves,
        max_views=search.max_views,
        allowed=_allowed(candidates, best, search),
        progress=search.progress,
    )
    columns = candidates.views.columns
    negative = np.zeros(len(candidates.names), dtype=bool) if columns is None else columns < 0
    chosen = [frozenset(_name(candidates.names[view], bool(negative[view])) for view in views) for views in sets]
    pairs = [(first, second) for first, second in zip(chosen[::2], chosen[1::2], strict=True) if first and second]
    if not pairs:
        raise InputError("Halves of the choosing pairs cannot choose views: give more pairs")
    agreement = float(np.mean([len(first & second) / len(first | second) for first, second in pairs]))
    views_of = Counter(chain.from_iterable(sorted(views) for views in chosen))
    poolings_of = Counter(chain.from_iterable({candidates.names[view].pooling for view in views} for views in sets))
    return ViewStability(_shares(views_of, len(sets)), _shares(poolings_of, len(sets)), agreement)


def _allowed(candidates: Candidates, best: Mean, search: SetSearch) -> NDArray[np.bool_]:
    """A mask of the views that halves may choose, which are those of the best set and the best single ones: (views,)"""
    chosen = {(view.pooling, view.layer) for view in best.views}
    in_best = np.array([(view.pooling, view.layer) in chosen for view in candidates.names])
    allowed = np.ones(len(in_best), dtype=bool)
    if search.max_cost is not None or search.max_passes is not None:
        limits = CostLimits(candidates, search.max_cost, search.max_passes, search.depth)
        allowed = limits.without_extra_cost(tuple(np.flatnonzero(in_best)))
    cosines = cosine_from_products(candidates.views.self_products.double())
    scores = np.nan_to_num(candidates.metric(cosines.mT.contiguous()).cpu().numpy(), nan=-np.inf)
    ranks = np.argsort(np.argsort(-np.where(allowed, scores, -np.inf), kind="stable"))
    mask: NDArray[np.bool_] = allowed & (in_best | (ranks < _MAX_CANDIDATES))
    return mask


def _name(view: View, is_negative: bool) -> str:
    """Such as "26 @ mean in echo", with a minus sign for a negative weight, and "less 8" for a form."""
    form = "" if view.less is None else f" less {view.less or 'mean'}"
    return f"{'-' * is_negative}{view.layer} @ {view.pooling}{form}"


def _shares(counts: Counter[str], total: int) -> dict[str, float]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: count / total for name, count in ordered}
