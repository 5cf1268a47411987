"""The mean of views: layers by several token poolings, as they are, of length 1, or less what all sentences share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.digests import tensor_digest
from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views, pick_layers, several_poolings_needed, weighted_sum
from layerwise.mixes.layer_set import LayerSet
from layerwise.registry import check_known

Scale = Literal["none", "unit"]
Less = int | None  # components that are taken away beside the mean: 0 for the mean alone, None for neither
SCALES: tuple[str, ...] = get_args(Scale)
_SPARE, _ITERATIONS = 16, 16  # of the search for components: until they stand still
_FEW = 8  # views, that are written one by one in a sentence
_TINY = 1e-12  # the length of a vector that is not divided by it


@dataclass(frozen=True, eq=False)
class Centres:
    """What sentences share in each view, to be taken away: means (views, width), directions (views, count, width)."""

    means: Tensor
    directions: Tensor

    def taken_from(self, vectors: Views) -> Views:
        """Views (..., views, width) without their means and directions."""
        if isinstance(vectors, Tensor):
            centred = vectors - self.means.to(vectors)
            return centred - _along(centred, self.directions.to(vectors))
        plain = torch.from_numpy(np.ascontiguousarray(vectors))
        taken: np.ndarray[Any, Any] = self.taken_from(plain).numpy()
        return taken

    def first(self, count: int) -> "Centres":
        """With so many of the directions."""
        return Centres(self.means, self.directions[:, :count])

    def pick(self, views: Sequence[int]) -> "Centres":
        """Of some of the views."""
        return Centres(self.means[views], self.directions[views])

    def partly(self, less: Sequence[Less]) -> "Centres":
        """With so many of each view's directions, and no mean either where that is None."""
        counts = torch.tensor([-1 if one is None else one for one in less], device=self.means.device)
        wanted = torch.arange(int(counts.max().clamp_min(0)), device=counts.device) < counts[:, None]
        directions = self.directions[:, : wanted.shape[1]] * wanted[..., None]
        return Centres(self.means * (counts >= 0)[:, None], directions)

    def digest(self) -> str:
        """A hash of all numbers."""
        return tensor_digest({"means": self.means, "directions": self.directions}, label="centres")


@dataclass(frozen=True, repr=False)
class LayerViews(Mix):
    """The mean over the views of several sets of layers, each with its token pooling.

    Args:
        parts: The sets of layers, each with another token pooling, or with the same and something else taken away.
        scale: "unit" for views of length 1: layers of a decoder have very unlike lengths, and so count alike.
        less: Take every view's mean away, and so many of its first components; None for neither. Or one for each part.
        weights: How often each view counts, in the order of the parts' layers; every one once without them. One below
            0 counts against the others: what it shares with them is taken away.
        centres: These means and components, fitted on some text, 0 where less or nothing is taken away. Two mixes are
            equal by what they say.

    >>> LayerViews((LayerSet.of(5, 9), LayerSet.of(12, pooling="cls")), "unit")
    LayerViews('views(5,9 @ mean; 12 @ cls; unit)')
    >>> LayerViews((LayerSet.of(9), LayerSet.of(5, 9)), "unit", less=(None, 8))
    LayerViews('views(9 @ mean; 5,9 @ mean less 8; unit)')
    >>> LayerViews((LayerSet.of(5, 9),), "unit", weights=(-1.0, 3.0))
    LayerViews('views(-1*5,3*9 @ mean; unit)')
    """

    parts: tuple[LayerSet, ...]
    scale: Scale = "none"
    less: Less | tuple[Less, ...] = None
    weights: tuple[float, ...] = ()
    centres: Centres | None = field(default=None, compare=False)
    pooling: str = field(init=False, default="mean", compare=False)  # the first of `poolings`

    def __post_init__(self) -> None:
        check_known(self.scale, SCALES, "scale")
        if not self.parts:
            raise MixError("A mean of views needs at least one set of layers")
        for part in self.parts:
            if not isinstance(part, LayerSet):
                raise MixError(f"{part} cannot be among views; a mean of views takes sets of layers")
        if isinstance(self.less, tuple) and len(self.less) != len(self.parts):
            raise MixError(f"{len(self.parts)} sets of views cannot be less {len(self.less)} things; give one for each")
        if isinstance(self.less, tuple) and len(set(self.less)) == 1:
            object.__setattr__(self, "less", self.less[0])
        if len(set(zip((part.pooling for part in self.parts), self.less_of_parts, strict=True))) < len(self.parts):
            raise MixError(f"A mean of views has a token pooling twice: {self}; write its layers as one set")
        if any(less is not None and less < 0 for less in self.less_of_parts):
            raise MixError(f"Views cannot be less {self.less}; take away the mean (0) or a number of components")
        if self.weights and not (all(map(isfinite, self.weights)) and all(self.weights) and max(self.weights) > 0):
            given = ", ".join(map(str, self.weights))
            raise MixError(f"The weights of views are numbers above 0, or below where others are above, not {given}")
        if set(self.weights) == {1.0}:
            object.__setattr__(self, "weights", ())
        object.__setattr__(self, "pooling", self.parts[0].pooling)

    @property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, in the order of the parts."""
        return tuple(dict.fromkeys(part.pooling for part in self.parts))

    @property
    def needs(self) -> dict[str, tuple[int, ...]]:
        """The layers of each token pooling."""
        return {
            pooling: tuple(sorted({layer for part in self.parts if part.pooling == pooling for layer in part.layers}))
            for pooling in self.poolings
        }

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of all parts, sorted."""
        return tuple(sorted({layer for part in self.parts for layer in part.layers}))

    @property
    def less_of_parts(self) -> tuple[Less, ...]:
        """What is taken away of the views of each part."""
        return self.less if isinstance(self.less, tuple) else (self.less,) * len(self.parts)

    @property
    def components(self) -> Less:
        """How many components are taken away of a view at most; None where nothing is."""
        return max((less for less in self.less_of_parts if less is not None), default=None)

    @property
    def shares(self) -> tuple[float, ...]:
        """What each view counts, in the order of the parts' layers; their sizes add up to 1."""
        weights = self.weights or (1.0,) * sum(len(part.layers) for part in self.parts)
        total = sum(map(abs, weights))
        return tuple(weight / total for weight in weights)

    @property
    def fitted(self) -> Centres | None:
        """The means and components to take away, where any are; a mix that has none yet is refused."""
        if self.components is not None and self.centres is None:
            raise MixError(f"{self} takes away means that were not fitted; load the model that has them, or search")
        return self.centres if self.components is not None else None

    def with_centres(self, centres: Centres) -> Self:
        """The same mix with these means and components."""
        views = sum(len(part.layers) for part in self.parts)
        if len(centres.means) != views or centres.directions.shape[:2] != (views, self.components):
            of = f"{len(centres.means)}, less {centres.directions.shape[1]} components"
            raise MixError(f"{self} has {views} views, less {self.components}, but its means are of {of}")
        return replace(self, centres=centres)

    def resolve(self, depth: int) -> Self:
        """The parts in layer numbers from 0."""
        parts = tuple(part.resolve(depth) for part in self.parts)
        if self.weights and len(self.weights) != sum(len(part.layers) for part in parts):
            raise MixError(f"A mean of views has {len(self.weights)} weights for other layers; give one for each view")
        if self.weights and any(len(part.spans) > 1 and min(part.spans)[0] < 0 for part in self.parts):
            raise MixError("Weights of views need layers that count from 0, not from the last, where a set has several")
        return replace(self, parts=parts)

    def combine(self, picked: Views) -> Views:
        """Where all views have one token pooling: (..., len(layers), width) -> (..., width)"""
        if len(self.poolings) > 1:
            raise several_poolings_needed(self, picked.shape)
        return self._mean([self._picked(part, picked) for part in self.parts])

    def combine_poolings(self, views: Views) -> Views:
        """(batch, poolings, len(layers), width) -> (batch, width)"""
        numbers = {pooling: number for number, pooling in enumerate(self.poolings)}
        return self._mean([self._picked(part, views[:, numbers[part.pooling]]) for part in self.parts])

    @property
    def expression(self) -> str:
        """Such as `views(5,9 @ mean; 12 @ cls; unit; less 8)`, or with `less 8` after the parts that it is for."""
        options = [str(self.scale)] * (self.scale != "none")
        parts = list(self._texts())
        if isinstance(self.less, tuple):
            parts = [_named(part, less) for part, less in zip(parts, self.less, strict=True)]
        elif self.less is not None:
            options.append(_in_words(self.less))
        return f"views({'; '.join([*parts, *options])})"

    def __str__(self) -> str:
        return self.expression

    @property
    def in_words(self) -> str:
        """As it is written, where it has few views; else how many there are of each pooling."""
        count = sum(len(part.layers) for part in self.parts)
        if count <= _FEW:
            return self.expression
        both = zip(self.parts, self.less_of_parts, strict=True)
        named = (_named(f"{len(part.layers)} of {part.pooling}", less) for part, less in both)
        return f"{count} views ({', '.join(named)})"

    def _texts(self) -> Iterator[str]:
        """The parts, a layer that counts n times as `n*layer`."""
        if not self.weights:
            yield from map(str, self.parts)
            return
        weights = iter(self.weights)
        for part in self.parts:
            layers = [(next(weights), layer) for layer in part.layers]
            named = (f"{layer}" if weight == 1 else f"{weight:.12g}*{layer}" for weight, layer in layers)
            yield f"{','.join(named)} @ {part.pooling}"

    def _picked(self, part: LayerSet, views: Views) -> Views:
        return pick_layers(views, [self.layers.index(layer) for layer in part.layers])

    def _mean(self, parts: list[Views]) -> Views:
        """(..., views of a part, width) of every part -> (..., width)"""
        if not isinstance(parts[0], Tensor):
            tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]
            mean: np.ndarray[Any, Any] = self._mean(tensors).numpy()
            return mean
        views = torch.cat(parts, dim=-2)
        views = views if self.fitted is None else self.fitted.taken_from(views)
        views = F.normalize(views, dim=-1, eps=_TINY) if self.scale == "unit" else views
        return weighted_sum(views, self.shares) if self.weights else views.mean(-2)


def _in_words(less: int) -> str:
    return f"less {less or 'mean'}"


def _named(views: str, less: Less) -> str:
    """Views and what is taken away of them."""
    return views if less is None else f"{views} {_in_words(less)}"


def fit_centres(views: Tensor, count: int) -> Centres:
    """Every view's mean and first components, by the views of some text: (texts, views, width)."""
    texts, _, width = views.shape
    if count and not 0 < count < min(texts - 1, width):
        raise MixError(
            f"{count} components of {texts} texts in {width} numbers leave nothing; give more, or take fewer"
        )
    means = views.mean(0)
    if not count:
        return Centres(means, means.new_zeros(len(means), 0, means.shape[1]))
    centred = (views - means).transpose(0, 1)
    directions = _strongest((centred.mT @ centred).double(), count).to(means)
    return Centres(means, directions)


def _strongest(matrices: Tensor, count: int) -> Tensor:
    """The eigenvectors of the largest eigenvalues, by subspace iteration: (n, width, width) -> (n, count, width)

    A few directions of hundreds are wanted, for which this takes a tenth of the time of a whole decomposition.
    """
    width = matrices.shape[-1]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(width, min(width, count + _SPARE), generator=generator, dtype=matrices.dtype)
    basis = torch.linalg.qr(start.to(matrices.device)).Q.expand(len(matrices), -1, -1)
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(matrices @ basis).Q
    rotation = torch.linalg.eigh(basis.mT @ matrices @ basis)[1].flip(-1)
    directions: Tensor = (basis @ rotation)[..., :count].mT.contiguous()
    return directions


def _along(vectors: Tensor, directions: Tensor) -> Tensor:
    """The part of vectors (..., views, width) along each view's directions (views, count, width)."""
    lengths = torch.einsum("...vw,vcw->...vc", vectors, directions)
    return torch.einsum("...vc,vcw->...vw", lengths, directions)
