"""The first look of a search of views: every view alone says which prompts and poolings are searched in full."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import by_prompt
from layerwise.mixes import Less
from layerwise.search.metrics import BatchMetric
from layerwise.search.view_candidates import most_blocks
from layerwise.search.view_encode import differing_views

Scores = NDArray[np.float64]
_PER_PROMPT = 2  # poolings of one prompt in the full search


def scores_alone(
    views: Tensor, pairs: tuple[NDArray[np.intp], NDArray[np.intp]], metric: BatchMetric, less: Sequence[Less]
) -> Scores:
    """The score of every layer of a pooling, as it is or without its mean, as `less` allows: (layers,)

    A layer that is the same for all texts has none, which is NaN. Components cost more than a first look may.
    """
    whole = views.double()
    forms = [whole] if None in less else []
    if set(less) != {None}:
        forms.append(whole - whole.mean(0))
    left, right = pairs
    units = (torch.nn.functional.normalize(form, dim=-1) for form in forms)
    scores = torch.stack([metric((unit[left] * unit[right]).sum(-1).mT.contiguous()) for unit in units])
    best = torch.nan_to_num(scores, nan=-torch.inf).amax(0)
    alone = torch.full_like(best, -torch.inf)
    differing = differing_views(views)
    alone[differing] = best[differing]
    known: Scores = alone.cpu().numpy()
    return np.where(np.isfinite(known), known, np.nan)


def best_prompts(singles: Mapping[str, Scores], keep: int, *, budget: float | None) -> list[str]:
    """The poolings of the best prompts, each with its best two, by the layers that a budget of passes allows."""

    def best(pooling: str) -> float:
        scores = singles[pooling]
        allowed = np.arange(len(scores)) <= most_blocks(budget, len(scores) - 1)
        return float(np.nan_to_num(scores[allowed], nan=-np.inf).max())

    prompts = by_prompt(sorted(singles, key=best, reverse=True))
    return [name for names in list(prompts.values())[:keep] for name in names[:_PER_PROMPT]]
