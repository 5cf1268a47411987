"""The token states of texts, from the same batches that embed them."""

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
    """A text's tokens in one prompt: states (tokens, width) by layer, and token weights (tokens,) by pooling.

    The weights of a pooling sum to 1.
    """

    ids: tuple[int, ...]
    states: dict[int, Exact]
    weights: dict[str, Exact]


def read_token_states(
    encoder: LayerEncoder, texts: Sequence[str], *, prompt: Prompt, layers: Sequence[int], poolings: Sequence[str]
) -> list[TokenStates]:
    """The states of every text's tokens in a prompt. Only linear poolings have weights."""
    results: list[TokenStates] = []

    def forward(tokens: Tensor, mask: Tensor, places: Tensor | None = None) -> Tensor:
        token_mask = mask.bool()
        states = encoder.read_states(tokens, mask, layers, token_mask).cpu().double()
        masks = {name: pooled_mask(parse_pooling(name).pooling, mask, places) for name in poolings}
        first = len(results)
        ends = token_mask.sum(1).cumsum(0).tolist()
        for row, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            text_states = states[start:end]
            is_token = token_mask[row]
            results.append(
                TokenStates(
                    tuple(tokens[row][is_token].tolist()),
                    {layer: text_states[:, number].numpy() for number, layer in enumerate(layers)},
                    {name: _weights(name, pooling_mask[row][is_token].cpu()) for name, pooling_mask in masks.items()},
                )
            )
        return torch.arange(first, len(results)).unsqueeze(1)  # batches are ordered by length

    (order,) = encoder.stream([texts], forward, prompt=prompt)
    return [results[int(place)] for place in order[:, 0]]


def _weights(pooling: str, mask: Tensor) -> Exact:
    """The weight of each token, found by pooling one-hot states: (tokens,) -> (tokens,)"""
    one_hot = torch.eye(len(mask), dtype=torch.float64).unsqueeze(0)
    weights: Exact = POOLINGS[parse_pooling(pooling).pooling](one_hot, mask.unsqueeze(0))[0].numpy()
    return weights
