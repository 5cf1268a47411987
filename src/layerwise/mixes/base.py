"""What every mix can do, whatever its kind."""

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
    """A way from layer views to an embedding. Layers may count from the last until `resolve(depth)`."""

    pooling: str = "mean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "pooling", str(parse_pooling(self.pooling)))  # an unknown pooling is refused

    @property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings of the layers that the mix needs, in the order of `combine_poolings`."""
        return (self.pooling,)

    @property
    def in_words(self) -> str:
        """For a sentence: as it is written, or shorter."""
        return str(self)

    @property
    def is_prompted(self) -> bool:
        """Whether the mix has views of prompts, so that a text takes a pass for each of them."""
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
        """How long an embedding is, for layers of this width."""
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
    """Some layers in their order: (..., layers, width) -> (..., len(places), width)

    Of a tensor not by a list of numbers, which would be copied to the GPU each time, as no CUDA graph allows.
    """
    if isinstance(views, Tensor):
        return torch.stack([views[..., place, :] for place in places], dim=-2)
    picked: np.ndarray[Any, Any] = views[..., list(places), :]
    return picked


def weighted_sum(views: Tensor, weights: Sequence[float]) -> Tensor:
    """Each view times its weight, added up; no tensor of weights is made. (..., views, width) -> (..., width)"""
    summed = views[..., 0, :] * weights[0]
    for place, weight in enumerate(weights[1:], start=1):
        summed = torch.add(summed, views[..., place, :], alpha=weight)
    return summed


def several_poolings_needed(mix: Mix, shape: Sequence[int]) -> MixError:
    """What to raise where views of one token pooling come to a mix of several."""
    return MixError(
        f"{mix} needs views by {' and '.join(mix.poolings)}, but these {tuple(shape)} are by one token pooling; "
        f"use LayerModel, or combine_poolings"
    )
