"""An attention network with known weights."""

import torch

from layerwise.mixes import AttentionNetwork


def network_of(scores: str, width: int, seed: int = 0) -> AttentionNetwork:
    """Weights large enough that the attention is far from even, in float64."""
    network = AttentionNetwork(width, scores=scores, generator=torch.Generator().manual_seed(seed)).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(20)
    return network
