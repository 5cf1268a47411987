"""Beam search over hundreds of views: exact scores of every set that it looks at, by Gram matrices.

A view is one vector a sentence. The cosine of two summed sets needs only sums of Gram matrices; adding a view to a set
adds a row and a column to them. These are kept for every set of the beam, so that all sets of one view more cost one
pass over (views, pairs) numbers, whatever the width of the vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError
from layerwise.search.metrics import BatchMetric
from layerwise.search.problems import Progress, no_progress

Fits = Callable[[tuple[int, ...]], Sequence[bool] | NDArray[np.bool_]]
_AT_ONCE = 2**26  # numbers of grown sets in memory
_PATIENCE = 2  # sizes without a better set, after which larger ones are not tried


@dataclass(frozen=True)
class ViewGrams:
    """Gram matrices of pairs' views: left with right, left with left, right with right. (3, pairs, views, views)"""

    grams: Tensor

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> "ViewGrams":
        """From (pairs, views, width) of either side, in float32: a set's cosine is off by 1e-6 at most."""
        if left.shape != right.shape or left.ndim != 3:
            raise InputError(f"The two sides' views differ: {tuple(left.shape)} and {tuple(right.shape)}")
        return cls(torch.stack([left @ right.mT, left @ left.mT, right @ right.mT]))

    @property
    def views(self) -> int:
        """How many views there are."""
        return int(self.grams.shape[-1])

    def pick(self, pairs: Tensor) -> "ViewGrams":
        """Some of the pairs."""
        return ViewGrams(self.grams[:, pairs])

    def cosines(self, views: Sequence[int], weights: Sequence[float] | None = None) -> Tensor:
        """Of the sums of some views, each so many times: (pairs,)"""
        picked = self.grams[:, :, list(views)][..., list(views)].double()
        counts = torch.tensor(weights or [1.0] * len(views), dtype=picked.dtype, device=picked.device)
        return _cosine(torch.einsum("spvw,v,w->sp", picked, counts, counts))


@dataclass(frozen=True)
class _Beam:
    """Some sets of one size: sums (sets, 3, pairs), and what each view would add to them (sets, 3, pairs, views)."""

    views: list[tuple[int, ...]]
    sums: Tensor
    rows: Tensor


def beam_search_views(
    grams: ViewGrams,
    metric: BatchMetric,
    *,
    most: int = 8,
    width: int = 8,
    fits: Fits | None = None,
    progress: Progress = no_progress,
) -> dict[tuple[int, ...], float]:
    """The best sets of each size, with their scores: those of k views give those of k + 1.

    Args:
        grams: Of the pairs that choose.
        metric: Prepared for these pairs: (sets, pairs) similarities to (sets,) scores.
        most: Views in a set.
        width: Sets that are kept of each size; 1 is greedy.
        fits: For a set, which views may come to it (views,), such as those that do not cost too much.
        progress: Called with the number of sets just scored.
    """
    own = torch.diagonal(grams.grams, dim1=-2, dim2=-1)  # (3, pairs, views)
    beam = _Beam([()], torch.zeros_like(own[None, ..., 0]), torch.zeros_like(own[None]))
    found: dict[tuple[int, ...], float] = {}
    best, patience = -torch.inf, _PATIENCE
    for _ in range(min(most, grams.views)):
        scores = _grown_scores(beam, own, metric)  # (sets, views)
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
        beam = _add(beam, grown, grams, own)
    return found


def bagged_views(
    grams: ViewGrams,
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
    random, counts = np.random.default_rng(seed), dict[int, int]()
    pairs, views = grams.grams.shape[1], np.flatnonzero(usable)
    some = ViewGrams(grams.grams[..., views, :][..., views])
    for _ in range(bags):
        rows = random.integers(pairs, size=pairs)
        metric = prepare(rows)
        if metric is None:
            continue
        drawn = some.pick(torch.from_numpy(rows).to(grams.grams.device))
        found = beam_search_views(drawn, metric, most=most, width=1, progress=progress)
        for view in min(found, key=lambda chosen: (-found[chosen], len(chosen), chosen), default=()):
            counts[int(views[view])] = counts.get(int(views[view]), 0) + 1
    repeated = {view: count for view, count in counts.items() if count > 1}
    return dict(sorted((repeated or counts).items()))


def _grown_scores(beam: _Beam, own: Tensor, metric: BatchMetric) -> Tensor:
    """The score of every set with each view added: (sets, views); -inf where all pairs are equally similar."""
    sets, _, pairs, views = beam.rows.shape
    scores = []
    for start in range(0, sets, max(1, _AT_ONCE // (3 * pairs * views))):
        some = slice(start, start + max(1, _AT_ONCE // (3 * pairs * views)))
        sums = (beam.sums[some].unsqueeze(-1) + beam.rows[some] + own).double()
        cosines = _cosine(sums.unbind(1)).mT.flatten(0, 1)  # (sets x views, pairs)
        scores.append(metric(cosines.contiguous()))
    return torch.nan_to_num(torch.cat(scores), nan=-torch.inf).view(sets, views).cpu()


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


def _add(beam: _Beam, grown: Sequence["_Grown"], grams: ViewGrams, own: Tensor) -> _Beam:
    rows, views = [row for _, _, row, _ in grown], [view for _, _, _, view in grown]
    sums = beam.sums[rows] + beam.rows[rows, ..., views] + own[..., views].movedim(-1, 0)
    # of the views with the new one, and of the new one with them
    with_new = (grams.grams[..., views, :] + grams.grams[..., views].mT).movedim(-2, 0)
    return _Beam([one[0] for one in grown], sums, beam.rows[rows] + with_new)


def _cosine(sums: Sequence[Tensor] | Tensor) -> Tensor:
    return sums[0] / (sums[1] * sums[2]).clamp_min(1e-30).sqrt()


_Grown = tuple[tuple[int, ...], float, int, int]  # a set, its score, the row of the smaller set and the view added
