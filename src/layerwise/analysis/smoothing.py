"""Over-smoothing (Chen et al. 2023, section 2.1): how alike a sentence's tokens are, and its adjacent layers.

In float32 at least; a zero vector's cosines are 0.
"""

import torch
from torch import Tensor

from layerwise.errors import InputError


def token_similarity(states: Tensor, mask: Tensor) -> Tensor:
    """TokSim (SSCL eq. 1): the mean cosine of different tokens. (b, t, d), (b, t) -> (b,); NaN for less than two

    The cosines of all pairs, each token with itself included, add up to the squared length of the sum of the tokens'
    unit vectors, so no (b, t, t) tensor is made.
    """
    if states.ndim != 3 or mask.shape != states.shape[:2]:
        raise InputError(
            f"The shapes are states {tuple(states.shape)} and mask {tuple(mask.shape)}; expected (sentences, tokens, "
            "width) and (sentences, tokens)"
        )
    states, kept = _full(states), mask.bool()
    norms = torch.linalg.vector_norm(states, dim=-1)
    counted = kept & (norms > 0)
    weights = counted / norms.masked_fill(norms == 0, 1)
    with torch.autocast(states.device.type, enabled=False):
        sums = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
    pairs = sums.square().sum(dim=-1) - counted.sum(dim=1)
    tokens = kept.sum(dim=1)
    return torch.where(tokens > 1, pairs / (tokens * (tokens - 1)), torch.nan)


def token_cosines(states: Tensor) -> Tensor:
    """The cosine of every token of a sentence with every other (SSCL fig. 5). (t, d) -> (t, t)"""
    if states.ndim != 2 or not states.numel():
        raise InputError(f"states: the shape is {tuple(states.shape)}; expected (tokens, width), each at least 1")
    units = _units(states)
    with torch.autocast(states.device.type, enabled=False):
        return units @ units.T


def layer_similarity(views: Tensor) -> Tensor:
    """SetSim (SSCL eq. 2): the cosine of layers i and i + 1. (b, layers + 1, d) -> (b, layers)"""
    if views.ndim != 3 or views.shape[1] < 2:
        raise InputError(
            f"views: the shape is {tuple(views.shape)}; expected (sentences, layers, width) with at least two layers"
        )
    units = _units(views)
    return (units[:, :-1] * units[:, 1:]).sum(dim=-1)


def _units(vectors: Tensor) -> Tensor:
    """Of length 1, or 0 where they were zero. (…, d) -> (…, d)"""
    vectors = _full(vectors)
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norms.masked_fill(norms == 0, 1)


def _full(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
