"""The concatenation of mixes, each with its token pooling."""

from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views, pick_layers, several_poolings_needed
from layerwise.mixes.concat import LayerConcat
from layerwise.mixes.layer_set import LayerSet
from layerwise.mixes.weights import LayerWeights

Part: TypeAlias = LayerSet | LayerWeights | LayerConcat


@dataclass(frozen=True, repr=False)
class LayerJoin(Mix):
    """The concatenation of the embeddings of several mixes, in this order.

    >>> LayerJoin((LayerSet.of(-1, pooling="cls"), LayerSet.of(-1)))
    LayerJoin('last @ cls | last @ mean')
    """

    parts: tuple[Part, ...]
    pooling: str = field(init=False, default="mean", compare=False)  # the first of `poolings`

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise MixError("A join needs two mixes or more")
        for part in self.parts:
            if not isinstance(part, LayerSet | LayerWeights | LayerConcat):
                raise MixError(f"{part} cannot be joined; a join takes sets, weights and concatenations of layers")
        if len(set(self.parts)) < len(self.parts):
            raise MixError(f"A join has a mix twice: {self}")
        object.__setattr__(self, "pooling", self.parts[0].pooling)

    @property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, in the order of the parts."""
        return tuple(dict.fromkeys(part.pooling for part in self.parts))

    @property
    def needs(self) -> dict[str, tuple[int, ...]]:
        """The layers of each token pooling's parts."""
        parts: dict[str, set[int]] = {}
        for part in self.parts:
            parts.setdefault(part.pooling, set()).update(part.layers)
        return {pooling: tuple(sorted(layers)) for pooling, layers in parts.items()}

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of all parts, sorted."""
        return tuple(sorted({layer for part in self.parts for layer in part.layers}))

    def resolve(self, depth: int) -> Self:
        """The parts in layer numbers from 0."""
        return type(self)(tuple(part.resolve(depth) for part in self.parts))

    def combine(self, picked: Views) -> Views:
        """With a single token pooling: (..., len(layers), width) -> (..., sum of the parts' widths)."""
        if len(self.poolings) > 1:
            raise several_poolings_needed(self, picked.shape)
        return _concatenate([self._combine_part(part, picked) for part in self.parts])

    def combine_poolings(self, views: Views) -> Views:
        """(batch, poolings, len(layers), width) -> (batch, sum of the parts' widths)"""
        pooled = [views[:, self.poolings.index(part.pooling)] for part in self.parts]
        return _concatenate([self._combine_part(part, picked) for part, picked in zip(self.parts, pooled, strict=True)])

    def width(self, width: int) -> int:
        """The sum of the parts' widths."""
        return sum(part.width(width) for part in self.parts)

    @property
    def expression(self) -> str:
        """The parts' texts, with their poolings."""
        return " | ".join(map(str, self.parts))

    def __str__(self) -> str:
        return self.expression

    def _combine_part(self, part: Part, picked: Views) -> Views:
        return part.combine(pick_layers(picked, [self.layers.index(layer) for layer in part.layers]))


def _concatenate(parts: list[Views]) -> Views:
    if isinstance(parts[0], Tensor):
        return torch.cat(parts, dim=-1)
    concatenated: np.ndarray[Any, Any] = np.concatenate(parts, axis=-1)
    return concatenated
