"""Beam search over hundreds of views: exact scores of every set that it looks at, by Gram matrices.

A view is one vector a sentence. The cosine of two summed sets needs only sums of Gram matrices; adding a view to a set
adds a row and a column to them. These are kept for every set of the beam, so that all sets of one view more cost one
pass over (views, pairs) numbers, whatever the width of the vectors.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.search.metrics import BatchMetric
from layerwise.search.problems import Progress, no_progress

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

    def cosines(self, views: tuple[int, ...]) -> Tensor:
        """Of the sums of some views: (pairs,)"""
        picked = self.grams[:, :, list(views)][..., list(views)].double().sum((-1, -2))
        return _cosine(picked)


@dataclass(frozen=True)
class _Set:
    """A set of the beam: its sums (3, pairs), and what each view would add to them (3, pairs, views)."""

    views: tuple[int, ...]
    sums: Tensor
    rows: Tensor


def search_views(
    grams: ViewGrams,
    metric: BatchMetric,
    *,
    most: int = 8,
    width: int = 8,
    usable: Tensor | None = None,
    progress: Progress = no_progress,
) -> dict[tuple[int, ...], float]:
    """Every set of views that was looked at, with its score: the best sets of k views give those of k + 1.

    Args:
        grams: Of the pairs that choose.
        metric: Prepared for these pairs: (sets, pairs) similarities to (sets,) scores.
        most: Views in a set.
        width: Sets that are kept of each size; 1 is greedy.
        usable: Which views may be taken, (views,) bool; all without it.
        progress: Called with the number of sets just scored.
    """
    own = torch.diagonal(grams.grams, dim1=-2, dim2=-1)  # (3, pairs, views)
    allowed = torch.ones(grams.views, dtype=torch.bool) if usable is None else usable
    start = _Set((), torch.zeros_like(own[..., 0]), torch.zeros_like(own))
    seen: dict[tuple[int, ...], float] = {}
    beam, best, patience = [start], -torch.inf, _PATIENCE
    for _ in range(min(most, int(allowed.sum()))):
        grown: dict[tuple[int, ...], tuple[float, _Set, int]] = {}
        for one in beam:
            scores = _grown_scores(one, own, metric)
            for view in torch.argsort(scores, descending=True).tolist():
                views = tuple(sorted((*one.views, view)))
                if not allowed[view] or view in one.views or views in grown:
                    continue
                grown[views] = (float(scores[view]), one, view)
            progress(int(allowed.sum()) - len(one.views))
        seen |= {views: score for views, (score, _, _) in grown.items()}
        ranked = sorted(grown, key=lambda views: (-grown[views][0], views))[:width]
        if not ranked:
            break
        beam = [_add(grown[views][1], grown[views][2], views, grams, own) for views in ranked]
        top = grown[ranked[0]][0]
        patience, best = (_PATIENCE, top) if top > best else (patience - 1, best)
        if not patience:
            break
    return seen


def _grown_scores(one: _Set, own: Tensor, metric: BatchMetric) -> Tensor:
    """The score of the set with each view added: (views,); -inf where all pairs are equally similar."""
    sums = (one.sums.unsqueeze(-1) + one.rows + own).double()  # (3, pairs, views)
    return torch.nan_to_num(metric(_cosine(sums).mT.contiguous()), nan=-torch.inf)


def _add(one: _Set, view: int, views: tuple[int, ...], grams: ViewGrams, own: Tensor) -> _Set:
    sums = one.sums + one.rows[..., view] + own[..., view]
    row = grams.grams[..., view, :] + grams.grams[..., view]  # of the views with this one, and of this one with them
    return _Set(views, sums, one.rows + row)


def _cosine(sums: Tensor) -> Tensor:
    return sums[0] / (sums[1] * sums[2]).clamp_min(1e-30).sqrt()
