"""Token pooling: reduces one layer's token states to one vector per sentence.

Every function takes states (batch, tokens, width) and a mask (batch, tokens) of ones and zeros, and returns
(batch, width) in float32 (float64 is kept). Sentences may be padded on either side.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from layerwise.registry import Registry

TokenPooling = Callable[[Tensor, Tensor], Tensor]
POOLINGS: Registry[TokenPooling] = Registry("token pooling")
MASK = "mask"  # pools the mask token of a prompt

_HALF = (torch.float16, torch.bfloat16)


class ViewPool:
    """Several poolings of one layer's states: (batch, tokens, width) -> (batch, poolings, width)

    Args:
        poolings: Their names.
        mask: The attention mask, (batch, tokens).
        places: The token span and mask position to pool in a prompt, (batch, 3).
    """

    def __init__(self, poolings: Sequence[str], mask: Tensor, places: Tensor | None = None) -> None:
        self.poolings = list(poolings)
        self._masks = {name: pooled_mask(name, mask, places) for name in set(poolings)}
        self.takes_packed = places is None and set(poolings) <= set(_PACKED)

    def __call__(self, states: Tensor) -> Tensor:
        """Pool padded states."""
        return torch.stack([POOLINGS[name](states, self._masks[name]) for name in self.poolings], dim=1)

    def of_packed(self, states: Tensor, bounds: Tensor) -> Tensor:
        """Pool concatenated texts, (n, width), where text i is bounds[i] to bounds[i + 1]."""
        return torch.stack([_PACKED[name](states, bounds) for name in self.poolings], dim=1)


@POOLINGS.register("mean")
def mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over a sentence's tokens."""
    if states.dtype in _HALF:  # accumulate in float32: a half-precision sum loses digits
        sums = (states * mask.unsqueeze(-1).to(states.dtype)).sum(dim=1, dtype=torch.float32)
    else:
        sums = _weighted_sum(states, mask)
    return sums / mask.sum(dim=1, keepdim=True)


@POOLINGS.register("cls")
def cls(states: Tensor, mask: Tensor) -> Tensor:
    """The first token."""
    return _at(states, mask.int().argmax(dim=1))


@POOLINGS.register("max")
def maximum(states: Tensor, mask: Tensor) -> Tensor:
    """The largest value of each dimension over a sentence's tokens."""
    return _full(states.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1))


@POOLINGS.register("last")
def last(states: Tensor, mask: Tensor) -> Tensor:
    """The last token, which in a decoder attends to all others."""
    return _at(states, (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).argmax(dim=1))


@POOLINGS.register("weighted-mean")
def weighted_mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean with weight n for the n-th token: later tokens of a decoder attend to more of the text."""
    positions = mask.cumsum(dim=1) * mask
    weights = positions / positions.sum(dim=1, keepdim=True)
    if states.dtype in _HALF:
        return (states * weights.unsqueeze(-1)).sum(dim=1, dtype=torch.float32)
    return _weighted_sum(states, weights)


@POOLINGS.register("mean-but-first")
def mean_but_first(states: Tensor, mask: Tensor) -> Tensor:
    """The mean without the first token, a decoder's attention sink; a single token is kept."""
    others = mask * (mask.cumsum(dim=1) > 1)
    return mean(states, torch.where(others.any(dim=1, keepdim=True), others, mask))


@POOLINGS.register(MASK)
def mask_token(states: Tensor, mask: Tensor) -> Tensor:
    """The mask token of a prompt; `mask` selects it."""
    return mean(states, mask)


def pooled_mask(pooling: str, mask: Tensor, places: Tensor | None) -> Tensor:
    """Return the mask of the tokens to pool: all of a plain sentence, those in `places` of a prompt."""
    if places is None:
        return mask
    tokens = torch.arange(mask.shape[1], device=mask.device)
    first, end, masked = places.unsqueeze(-1).unbind(1)  # indexing by lists is not allowed in CUDA graphs
    pooled = tokens == masked if pooling == MASK else (tokens >= first) & (tokens < end)
    return pooled.to(mask.dtype)


def _weighted_sum(states: Tensor, weights: Tensor) -> Tensor:
    """Reduce the states in one pass without copying them, in their precision even under autocast."""
    with torch.autocast(states.device.type, enabled=False):
        return torch.bmm(weights.unsqueeze(1).to(states.dtype), states).squeeze(1)


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """(batch, tokens, width), (batch,) -> (batch, width)"""
    index = positions[:, None, None].expand(-1, 1, states.shape[-1])
    return _full(states.gather(1, index).squeeze(1))


def _full(vectors: Tensor) -> Tensor:
    return vectors.float() if vectors.dtype in _HALF else vectors


def _packed_mean(states: Tensor, bounds: Tensor) -> Tensor:
    return torch.segment_reduce(
        _full(states), "mean", offsets=bounds, unsafe=True
    )  # unsafe: skips the check that would synchronise


_PACKED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # poolings of packed states
    "mean": _packed_mean,
    "cls": lambda states, bounds: _full(states[bounds[:-1]]),
    "last": lambda states, bounds: _full(states[bounds[1:] - 1]),
}
