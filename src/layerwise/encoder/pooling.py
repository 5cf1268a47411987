"""Token pooling: one layer's token states to one vector a sentence.

Every function takes states (batch, tokens, width) and a mask (batch, tokens) of ones and zeros, and gives
(batch, width) in float32 (float64 stays). Sentences may be padded on either side.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from layerwise.registry import Registry

TokenPooling = Callable[[Tensor, Tensor], Tensor]
POOLINGS: Registry[TokenPooling] = Registry("token pooling")

_HALF = (torch.float16, torch.bfloat16)


@POOLINGS.register("mean")
def mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over a sentence's tokens."""
    if states.dtype in _HALF:  # summed in float32: a sum of half-precision states loses digits
        sums = (states * mask.unsqueeze(-1).to(states.dtype)).sum(dim=1, dtype=torch.float32)
    else:  # one pass over the states and no copy of them
        sums = torch.bmm(mask.unsqueeze(1).to(states.dtype), states).squeeze(1)
    return sums / mask.sum(dim=1, keepdim=True)


@POOLINGS.register("cls")
def cls(states: Tensor, mask: Tensor) -> Tensor:
    """The first token."""
    first = mask.int().argmax(dim=1)[:, None, None].expand(-1, 1, states.shape[-1])
    return _full(states.gather(1, first).squeeze(1))


@POOLINGS.register("max")
def maximum(states: Tensor, mask: Tensor) -> Tensor:
    """The largest value of each dimension over a sentence's tokens."""
    return _full(states.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1))


def _full(vectors: Tensor) -> Tensor:
    return vectors.float() if vectors.dtype in _HALF else vectors
