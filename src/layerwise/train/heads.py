"""Fresh heads behind the pooler, by name."""

import torch
from torch import Tensor, nn

from layerwise.model.head import Head

_STD = 0.02  # as BERT's own layers start


def fresh_head(kind: str, wide: int, width: int, *, seed: int) -> nn.Module:
    """(n, wide) -> (n, width): "mlp" (tanh), "linear", "mlp-bn", "none"."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "none":
        return nn.Identity()
    if kind == "mlp-bn":
        return _batch_norm_head(wide, width, generator)
    weight = torch.empty(width, wide).normal_(std=_STD, generator=generator)
    return Head(weight, torch.zeros(width), activation="tanh" if kind == "mlp" else "identity")


def _batch_norm_head(wide: int, width: int, generator: torch.Generator) -> nn.Module:
    """DiffCSE's projector: two linear layers without biases, batch norm behind each, ReLU between."""
    network = nn.Sequential(
        nn.Linear(wide, 2 * width, bias=False),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width, bias=False),
        nn.BatchNorm1d(width, affine=False),
    )
    for layer in (network[0], network[3]):
        weight: Tensor = layer.weight  # type: ignore[assignment]
        nn.init.normal_(weight, std=_STD, generator=generator)
    return network
