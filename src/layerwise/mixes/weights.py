"""The weighted mean of layers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch import Tensor

from layerwise.encoder import resolve_layer
from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views, weighted_sum


@dataclass(frozen=True, repr=False)
class LayerWeights(Mix):
    """A weighted mean over layers. Weights are normalised to a sum of 1, so their sum must be positive.

    >>> LayerWeights.of({1: 1, 12: 3})
    LayerWeights('1:0.25,12:0.75 @ mean')
    """

    weights: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = [layer for layer, _ in self.weights]
        if len(set(numbers)) < len(numbers):
            raise MixError(f"A layer has two weights: {numbers}")
        total = sum(weight for _, weight in self.weights)
        if not math.isfinite(total) or total <= 0:
            raise MixError(f"Layer weights must be finite and have a positive sum; this sum is {total}")
        scale = 1.0 if math.isclose(total, 1.0, rel_tol=1e-12) else total  # normalised weights stay unchanged
        normalised = sorted((int(layer), float(weight) / scale) for layer, weight in self.weights if weight)
        object.__setattr__(self, "weights", tuple(normalised))

    @classmethod
    def of(cls, weights: Mapping[int, float], *, pooling: str = "mean") -> Self:
        """Weights by layer number."""
        return cls(tuple((int(layer), float(weight)) for layer, weight in weights.items()), pooling=pooling)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers whose weight is not 0, sorted."""
        layers = tuple(layer for layer, _ in self.weights)
        if layers[0] < 0:
            raise MixError(f"{self} counts from the last layer: call resolve(depth) first")
        return layers

    def resolve(self, depth: int) -> Self:
        """The weights by layer numbers from 0."""
        resolved = tuple((resolve_layer(layer, depth), weight) for layer, weight in self.weights)
        return type(self)(resolved, pooling=self.pooling)

    def combine(self, picked: Views) -> Views:
        """The weighted mean: (..., len(layers), width) -> (..., width)."""
        values = [weight for _, weight in self.weights]
        if isinstance(picked, Tensor):
            return weighted_sum(picked, values)
        weighted: np.ndarray[Any, Any] = np.einsum("...lw,l->...w", picked, np.asarray(values, dtype=picked.dtype))
        return weighted

    @property
    def expression(self) -> str:
        """Such as `1:0.25,12:0.75`."""
        return ",".join(f"{layer}:{weight!r}" for layer, weight in self.weights)
