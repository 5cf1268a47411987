"""A view of a sentence, and the base class of all mixes of views."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from layerwise.digests import tensor_digest
from layerwise.encoder import parse_pooling
from layerwise.errors import MixError

if TYPE_CHECKING:
    from layerwise.mixes.centres import Centres

Array = TypeVar("Array", Tensor, np.ndarray[Any, Any])
Scale = Literal["none", "unit"]
SCALES: tuple[str, ...] = get_args(Scale)
Remove = int | None  # components to remove in addition to the mean: 0 removes the mean only, None removes nothing


@dataclass(frozen=True)
class View:
    """A layer by a token pooling, possibly in a prompt ("last in eol"), without its mean and `remove` components."""

    layer: int
    pooling: str = "mean"
    remove: Remove = None


class Fitted(nn.Module):
    """What a mix learns from text, for views of this width: centres of views, or an attention network."""

    label: str
    width: int

    def digest(self) -> str:
        """A hash of the weights and options."""
        return tensor_digest(self.state_dict(), label=self.label)


class Mix(ABC):
    """A function from views to an embedding. Layers may count from the last until `resolve(depth)`.

    A mix is a value: it can be printed, parsed and compared. What differs between mixes is answered by the attributes
    below, so that callers need not know the classes.

    Attributes:
        reads_tokens: Whether it needs the tokens' states instead of views; see `combine_tokens`.
        is_learned: Whether training sets its weights.
        nonlinear: If the embedding is no weighted sum of views, why.
        scale: "unit" if every view is normalised to length 1.
        centres: The means and components that were fitted to be removed from views.
    """

    reads_tokens: bool = False
    is_learned: bool = False
    nonlinear: str = ""
    scale: Scale = "none"
    centres: "Centres | None" = None

    @property
    @abstractmethod
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, in the order in which `combine` takes them."""

    @property
    @abstractmethod
    def views(self) -> tuple[View, ...]:
        """The views that a resolved mix needs; raises `MixError` before `resolve`."""

    @abstractmethod
    def resolve(self, depth: int) -> Self:
        """The same mix in layer numbers from 0, for an encoder whose last layer is `depth`."""

    @abstractmethod
    def _combine(self, views: Tensor) -> Tensor:
        """(..., poolings, layers, width) -> (..., any width)"""

    @abstractmethod
    def __str__(self) -> str: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The layers that a resolved mix needs, sorted."""
        return tuple(sorted({view.layer for view in self.views}))

    @property
    def needs(self) -> dict[str, tuple[int, ...]]:
        """The layers that a resolved mix needs of each token pooling."""
        layers: dict[str, set[int]] = {}
        for view in self.views:
            layers.setdefault(view.pooling, set()).add(view.layer)
        return {pooling: tuple(sorted(layers[pooling])) for pooling in self.poolings}

    @property
    def pooling(self) -> str:
        """The first of `poolings`."""
        return self.poolings[0]

    @property
    def is_prompted(self) -> bool:
        """Whether the mix needs prompts, each of which takes a forward pass of its own."""
        return any(not parse_pooling(pooling).prompt.is_plain for pooling in self.poolings)

    @property
    def is_plain(self) -> bool:
        """Whether it is a mean of layers by one token pooling, as they are."""
        return False

    @property
    def listed_layers(self) -> tuple[int, ...] | None:
        """The layers of a plain set as they are listed, possibly from the last; None of any other mix."""
        return None

    @property
    def components(self) -> Remove:
        """The maximum number of components that are removed from a view; None if nothing is removed."""
        return None

    @property
    def is_native(self) -> bool:
        """Whether plain sentence-transformers can compute it: it averages layers of tokens, then pools."""
        return False

    @property
    def in_words(self) -> str:
        """The text of the mix, shortened if it is long."""
        return str(self)

    @property
    def terms(self) -> tuple[tuple[View, float, int], ...] | None:
        """If the embedding is a weighted sum of views: each view's weight, and which vector of the embedding it joins.

        None if the weights of the views depend on the text.
        """
        return None

    @property
    def fitted(self) -> Fitted | None:
        """What the mix learnt from text, if anything; raises `MixError` before that."""
        return None

    def with_fitted(self, fitted: Fitted) -> Self:
        """The same mix with these weights, which are not copied."""
        raise MixError(f"{self} learns nothing from text, so it takes no {type(fitted).__name__}")

    def with_weights(self, weights: Mapping[str, Tensor]) -> Self:
        """The same mix with the state that a `Fitted` was saved by."""
        if weights:
            raise MixError(f"{self} learns nothing from text, so it takes no weights {', '.join(weights)}")
        return self

    def fresh(self, width: int, *, seed: int) -> Self:  # noqa: ARG002 - of mixes that are learned
        """The same mix for layers of this width, with untrained weights if it is learned."""
        return self

    def with_pooling(self, pooling: str) -> Self:
        """The same layers by another token pooling."""
        raise MixError(f"{self} has token poolings of its own, so it cannot be pooled by {pooling}; give layers too")

    def width(self, width: int) -> int:
        """The width of an embedding, for layers of this width."""
        return width

    def combine(self, views: Array) -> Array:
        """The views of `poolings` and `layers` to embeddings: (..., poolings, layers, width) -> (..., any width)"""
        if views.shape[-3] != len(self.poolings):
            raise MixError(
                f"{self} needs views by {' and '.join(self.poolings)}, but these {tuple(views.shape)} are by "
                f"{views.shape[-3]} token pooling(s)"
            )
        if isinstance(views, Tensor):
            return self._combine(views)
        with torch.no_grad():
            tensor = self._combine(torch.from_numpy(np.require(views, requirements=["C", "W"])))
            combined: np.ndarray[Any, Any] = tensor.cpu().numpy()
        return combined

    def combine_tokens(self, states: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002 - of mixes that read tokens
        """If it reads tokens: states (tokens, layers, width) of the tokens in `mask` (batch, length) -> embeddings."""
        raise MixError(f"{self} reads views, not token states; call combine(views)")

    def __call__(self, views: Array) -> Array:
        """The views of all layers by one token pooling: (..., layers + 1, width) -> (..., any width)"""
        resolved = self.resolve(views.shape[-2] - 1)
        return resolved.combine(views[..., None, list(resolved.layers), :])


def pick(views: Tensor, places: Sequence[tuple[int, int]]) -> Tensor:
    """Select views by (pooling, layer) index: (..., poolings, layers, width) -> (..., len(places), width)

    Tensors are not indexed by a list, which would be copied to the GPU each time and is not allowed in CUDA graphs.
    """
    if list(places) == [(0, layer) for layer in range(views.shape[-2])]:
        return views[..., 0, :, :]
    return torch.stack([views[..., pooling, layer, :] for pooling, layer in places], dim=-2)
