"""The base class of all mixes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder import parse_pooling
from layerwise.errors import MixError

Views = TypeVar("Views", Tensor, np.ndarray[Any, Any])


@dataclass(frozen=True, repr=False, kw_only=True)
class Mix(ABC):
    """A function from layer views to an embedding. Layers may count from the last until `resolve(depth)`."""

    pooling: str = "mean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "pooling", str(parse_pooling(self.pooling)))  # refuses an unknown pooling

    @property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings of the layers that the mix needs, in the order of `combine_poolings`."""
        return (self.pooling,)

    @property
    def in_words(self) -> str:
        """The text of the mix, shortened if it is long."""
        return str(self)

    @property
    def is_prompted(self) -> bool:
        """Whether the mix needs prompts, each of which takes a forward pass of its own."""
        return any(not parse_pooling(pooling).prompt.is_plain for pooling in self.poolings)

    @property
    def needs(self) -> dict[str, tuple[int, ...]]:
        """The layers that a resolved mix needs of each token pooling."""
        return dict.fromkeys(self.poolings, self.layers)

    @property
    @abstractmethod
    def layers(self) -> tuple[int, ...]:
        """The layers that a resolved mix needs, in the order in which `combine` takes them."""

    @abstractmethod
    def resolve(self, depth: int) -> Self:
        """The same mix in layer numbers from 0, for an encoder whose last layer is `depth`."""

    @abstractmethod
    def combine(self, picked: Views) -> Views:
        """The views of `layers` to embeddings: (..., len(layers), width) -> (..., any width)."""

    def combine_poolings(self, views: Views) -> Views:
        """The views by all of `poolings`: (batch, poolings, len(layers), width) -> (batch, any width)."""
        return self.combine(views[:, 0])

    @property
    @abstractmethod
    def expression(self) -> str:
        """The text of the mix without its pooling."""

    def width(self, width: int) -> int:
        """The width of an embedding, for layers of this width."""
        return width

    def __call__(self, views: Views) -> Views:
        """The views of all layers to embeddings: (..., layers + 1, width) -> (..., any width)."""
        resolved = self.resolve(views.shape[-2] - 1)
        return resolved.combine(views[..., list(resolved.layers), :])

    def __str__(self) -> str:
        return f"{self.expression} @ {self.pooling}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


def pick_layers(views: Views, places: Sequence[int]) -> Views:
    """Select layers in this order: (..., layers, width) -> (..., len(places), width)

    Tensors are not indexed by a list, which would be copied to the GPU each time and is not allowed in CUDA graphs.
    """
    if isinstance(views, Tensor):
        return torch.stack([views[..., place, :] for place in places], dim=-2)
    picked: np.ndarray[Any, Any] = views[..., list(places), :]
    return picked


def weighted_sum(views: Tensor, weights: Sequence[float]) -> Tensor:
    """The weighted sum, without a tensor of weights: (..., views, width) -> (..., width)"""
    total = views[..., 0, :] * weights[0]
    for place, weight in enumerate(weights[1:], start=1):
        total = torch.add(total, views[..., place, :], alpha=weight)
    return total


def several_poolings_needed(mix: Mix, shape: Sequence[int]) -> MixError:
    """The error for views of one token pooling if the mix needs several."""
    return MixError(
        f"{mix} needs views by {' and '.join(mix.poolings)}, but these {tuple(shape)} are by one token pooling; "
        f"use LayerModel, or combine_poolings"
    )
