"""The token states of some texts, from the same batches that embed them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import POOLINGS, LayerEncoder, Prompt, parse_pooling, pooled_mask

Exact = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TokenStates:
    """A text's tokens within one prompt: states (tokens, width) by layer, and by pooling how much each token counts.

    The weights (tokens,) of a pooling sum to 1.
    """

    ids: tuple[int, ...]
    states: dict[int, Exact]
    weights: dict[str, Exact]


def read_token_states(
    encoder: LayerEncoder, texts: Sequence[str], *, prompt: Prompt, layers: Sequence[int], poolings: Sequence[str]
) -> list[TokenStates]:
    """The states of every text's tokens within a prompt. Only linear poolings have weights."""
    read: list[TokenStates] = []

    def forward(tokens: Tensor, mask: Tensor, places: Tensor | None = None) -> Tensor:
        token_mask = mask.bool()
        states = encoder.read_states(tokens, mask, layers, token_mask).cpu().double()
        pooled = {name: pooled_mask(parse_pooling(name).pooling, mask, places) for name in poolings}
        first = len(read)
        ends = token_mask.sum(1).cumsum(0).tolist()
        for row, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            by_token = states[start:end]
            real = token_mask[row]
            read.append(
                TokenStates(
                    tuple(tokens[row][real].tolist()),
                    {layer: by_token[:, number].numpy() for number, layer in enumerate(layers)},
                    {name: _weights(name, taken[row][real].cpu()) for name, taken in pooled.items()},
                )
            )
        return torch.arange(first, len(read)).unsqueeze(1)  # batches are ordered by length

    (order,) = encoder.stream([texts], forward, prompt=prompt)
    return [read[int(place)] for place in order[:, 0]]


def _weights(pooling: str, mask: Tensor) -> Exact:
    """How much each token counts, by pooling states of which each has a dimension of its own: (tokens,) -> (tokens,)"""
    own_dimension = torch.eye(len(mask), dtype=torch.float64).unsqueeze(0)
    weights: Exact = POOLINGS[parse_pooling(pooling).pooling](own_dimension, mask.unsqueeze(0))[0].numpy()
    return weights
