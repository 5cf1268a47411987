"""The mean of views: layers by several token poolings, as they are or each of length 1."""

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views, several_poolings_needed
from layerwise.mixes.layer_set import LayerSet
from layerwise.registry import check_known

Scale = Literal["none", "unit"]
SCALES: tuple[str, ...] = get_args(Scale)
_TINY = 1e-12  # the length of a vector that is not divided by it


@dataclass(frozen=True, repr=False)
class LayerViews(Mix):
    """The mean over the views of several sets of layers, each with its token pooling.

    Layers of a decoder have very unlike lengths: with the scale "unit" every view counts alike.

    >>> LayerViews((LayerSet.of(5, 9), LayerSet.of(12, pooling="cls")), "unit")
    LayerViews('views(5,9 @ mean; 12 @ cls; unit)')
    """

    parts: tuple[LayerSet, ...]
    scale: Scale = "none"
    pooling: str = field(init=False, default="mean", compare=False)  # the first of `poolings`

    def __post_init__(self) -> None:
        check_known(self.scale, SCALES, "scale")
        if not self.parts:
            raise MixError("A mean of views needs at least one set of layers")
        for part in self.parts:
            if not isinstance(part, LayerSet):
                raise MixError(f"{part} cannot be among views; a mean of views takes sets of layers")
        if len(self.poolings) < len(self.parts):
            raise MixError(f"A mean of views has a token pooling twice: {self}; write its layers as one set")
        object.__setattr__(self, "pooling", self.parts[0].pooling)

    @property
    def poolings(self) -> tuple[str, ...]:
        """The token poolings, in the order of the parts."""
        return tuple(dict.fromkeys(part.pooling for part in self.parts))

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of all parts, sorted."""
        return tuple(sorted({layer for part in self.parts for layer in part.layers}))

    def resolve(self, depth: int) -> Self:
        """The parts in layer numbers from 0."""
        return type(self)(tuple(part.resolve(depth) for part in self.parts), self.scale)

    def combine(self, picked: Views) -> Views:
        """Where all views have one token pooling: (..., len(layers), width) -> (..., width)"""
        if len(self.parts) > 1:
            raise several_poolings_needed(self, picked.shape)
        return _mean([self._scaled(self.parts[0], picked)])

    def combine_poolings(self, views: Views) -> Views:
        """(batch, poolings, len(layers), width) -> (batch, width)"""
        return _mean([self._scaled(part, views[:, number]) for number, part in enumerate(self.parts)])

    @property
    def expression(self) -> str:
        """Such as `views(5,9 @ mean; 12 @ cls; unit)`."""
        return f"views({'; '.join([*map(str, self.parts), *([self.scale] if self.scale != 'none' else [])])})"

    def __str__(self) -> str:
        return self.expression

    def _scaled(self, part: LayerSet, picked: Views) -> Views:
        """The views of one part: (..., len(layers), width) -> (..., len(part.layers), width)"""
        views = picked[..., [self.layers.index(layer) for layer in part.layers], :]
        if self.scale == "none":
            return views
        if isinstance(views, Tensor):
            return F.normalize(views, dim=-1, eps=_TINY)
        scaled: np.ndarray[Any, Any] = views / np.maximum(np.linalg.norm(views, axis=-1, keepdims=True), _TINY)
        return scaled


def _mean(parts: list[Views]) -> Views:
    if isinstance(parts[0], Tensor):
        return torch.cat(parts, dim=-2).mean(-2)
    mean: np.ndarray[Any, Any] = np.concatenate(parts, axis=-2).mean(-2)
    return mean
