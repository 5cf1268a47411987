"""Screen single views: their scores decide which prompts and poolings the full search covers."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import by_prompt
from layerwise.mixes import Remove as Less
from layerwise.search.metrics import BatchMetric
from layerwise.search.view_candidates import max_blocks
from layerwise.search.view_encode import differing_views

Scores = NDArray[np.float64]
_POOLINGS_PER_PROMPT = 2  # in the full search


def score_single_views(
    views: Tensor, pairs: tuple[NDArray[np.intp], NDArray[np.intp]], metric: BatchMetric, less: Sequence[Less]
) -> Scores:
    """The score of every layer of a pooling, unchanged or centred, as `less` allows: (layers,)

    NaN for a layer that is the same for all texts. Components are not removed, which would cost too much here.
    """
    unchanged = views.double()
    forms = [unchanged] if None in less else []
    if set(less) != {None}:
        forms.append(unchanged - unchanged.mean(0))
    left, right = pairs
    normalized = (torch.nn.functional.normalize(form, dim=-1) for form in forms)
    form_scores = torch.stack([metric((unit[left] * unit[right]).sum(-1).mT.contiguous()) for unit in normalized])
    best = torch.nan_to_num(form_scores, nan=-torch.inf).amax(0)
    differing = differing_views(views)
    masked = torch.full_like(best, -torch.inf)
    masked[differing] = best[differing]
    scores: Scores = masked.cpu().numpy()
    return np.where(np.isfinite(scores), scores, np.nan)


def best_prompts(singles: Mapping[str, Scores], keep: int, *, max_cost: float | None) -> list[str]:
    """The best two poolings of each of the `keep` best prompts, by the layers that `max_cost` allows."""

    def best_score(pooling: str) -> float:
        scores = singles[pooling]
        allowed = np.arange(len(scores)) <= max_blocks(max_cost, len(scores) - 1)
        return float(np.nan_to_num(scores[allowed], nan=-np.inf).max())

    prompts = by_prompt(sorted(singles, key=best_score, reverse=True))
    return [name for names in list(prompts.values())[:keep] for name in names[:_POOLINGS_PER_PROMPT]]
