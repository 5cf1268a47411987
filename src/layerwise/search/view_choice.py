"""Select views from candidates: a beam search for the best set, then bagging over resamples of the choosing pairs."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.mixes import Mean
from layerwise.search.metrics import Metric
from layerwise.search.problems import Progress
from layerwise.search.view_beam import PreparedResample, bagged_views, beam_search_views
from layerwise.search.view_candidates import Candidates, CostLimits

ScoredViews = tuple[float, Mean]


@dataclass(frozen=True)
class SetSearch:
    """The options of a search over sets of views, as in `ViewSearch`.

    `max_passes` and `max_cost` limit the cost of a set, for a model of `depth` blocks.
    """

    max_views: int
    width: int
    n_resamples: int
    seed: int
    metric: Metric
    device: torch.device | str
    max_passes: int | None
    max_cost: float | None
    depth: int
    progress: Progress

    def best(self, candidates: Candidates) -> ScoredViews | None:
        """The best set over all forms of the views, with its score; None if the limits allow no set."""
        results = [self._best_of(subset) for subset in candidates.by_form_and_all()]
        return max(filter(None, results), key=lambda result: result[0], default=None)

    def _best_of(self, candidates: Candidates) -> ScoredViews | None:
        limits = CostLimits(candidates, self.max_cost, self.max_passes, self.depth)
        best = self._best_set(candidates, limits)
        if best is None:
            return None
        allowed = limits.without_extra_cost(best)
        bagged = candidates.net_counts(self._bagged(candidates, allowed)) if self.n_resamples else {}
        counts = bagged if max(bagged.values(), default=0) > 0 else candidates.net_counts(dict.fromkeys(best, 1))
        cosines = candidates.views.cosines(list(counts), list(map(float, counts.values())))
        return float(candidates.metric(cosines[None].contiguous())[0]), candidates.mix(counts)

    def _best_set(self, candidates: Candidates, limits: CostLimits) -> tuple[int, ...] | None:
        """The best set of all beam searches within the limits."""
        scores: dict[tuple[int, ...], float] = {}
        for places, allowed in limits.subsets():
            results = beam_search_views(
                candidates.views if len(places) == len(candidates.names) else candidates.views.pick(places),
                candidates.metric,
                max_views=self.max_views,
                width=self.width,
                allowed=allowed,
                progress=self.progress,
            )
            scores |= {tuple(places[list(views)].tolist()): score for views, score in results.items()}
        return min(scores, key=lambda views: (-scores[views], len(views), views), default=None)

    def _bagged(self, candidates: Candidates, allowed: NDArray[np.bool_]) -> dict[int, int]:
        """How many resamples of the choosing pairs select each view."""

        def prepare(rows: NDArray[np.intp]) -> PreparedResample | None:
            gold = candidates.gold
            return self.metric.resampled(gold, rows, self.device) if np.ptp(gold[rows]) else None

        return bagged_views(
            candidates.views,
            prepare,
            n_resamples=self.n_resamples,
            max_views=self.max_views,
            allowed=allowed,
            seed=self.seed,
            progress=self.progress,
        )
