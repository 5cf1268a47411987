"""From candidates to the views that are taken: the best set of a beam search, then resamples of the choosing pairs."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.mixes import LayerViews
from layerwise.search.metrics import Metric
from layerwise.search.problems import Progress
from layerwise.search.view_beam import Prepared, bagged_views, beam_search_views
from layerwise.search.view_candidates import Candidates, Limits

ScoredViews = tuple[float, LayerViews]


@dataclass(frozen=True)
class SetSearch:
    """How sets of views are searched, as `ViewSearch` says, by a metric on a device.

    `passes` and `budget` limit what a set may cost, for a model of `depth` blocks.
    """

    most: int
    width: int
    bags: int
    seed: int
    metric: Metric
    device: torch.device | str
    passes: int | None
    budget: float | None
    depth: int
    progress: Progress

    def best(self, candidates: Candidates) -> ScoredViews | None:
        """The best views, less the same thing or several, with their score; None where the limits allow none."""
        tried = [self._best_of(some) for some in candidates.alone_and_together()]
        return max(filter(None, tried), key=lambda found: found[0], default=None)

    def _best_of(self, candidates: Candidates) -> ScoredViews | None:
        limits = Limits(candidates, self.budget, self.passes, self.depth)
        best = self._best_set(candidates, limits)
        if best is None:
            return None
        bagged = candidates.net(self._bagged(candidates, limits.within(best))) if self.bags else {}
        counts = bagged if max(bagged.values(), default=0) > 0 else candidates.net(dict.fromkeys(best, 1))
        cosines = candidates.views.cosines(list(counts), list(map(float, counts.values())))
        return float(candidates.metric(cosines[None].contiguous())[0]), candidates.mix(counts)

    def _best_set(self, candidates: Candidates, limits: Limits) -> tuple[int, ...] | None:
        """Of the beam search, within limits."""
        views, seen = candidates.views, dict[tuple[int, ...], float]()
        for places, fits in limits.searches():
            some = views if len(places) == len(candidates.names) else views.pick(places)
            scored = beam_search_views(
                some, candidates.metric, most=self.most, width=self.width, fits=fits, progress=self.progress
            )
            seen |= {tuple(places[list(chosen)].tolist()): score for chosen, score in scored.items()}
        return min(seen, key=lambda chosen: (-seen[chosen], len(chosen), chosen), default=None)

    def _bagged(self, candidates: Candidates, usable: NDArray[np.bool_]) -> dict[int, int]:
        """How often each view is chosen by resamples of the choosing pairs."""

        def prepare(rows: NDArray[np.intp]) -> Prepared | None:
            gold = candidates.gold
            return self.metric.resampled(gold, rows, self.device) if np.ptp(gold[rows]) else None

        return bagged_views(
            candidates.views,
            prepare,
            bags=self.bags,
            most=self.most,
            usable=usable,
            seed=self.seed,
            progress=self.progress,
        )
