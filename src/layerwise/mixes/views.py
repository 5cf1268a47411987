"""The mean of views: layers by several token poolings, unchanged, normalised, or without common components."""

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
Less = int | None  # components to remove in addition to the mean: 0 removes the mean only, None removes nothing
SCALES: tuple[str, ...] = get_args(Scale)
_OVERSAMPLES, _ITERATIONS = 16, 16  # of the subspace iteration, enough for it to converge
_MAX_LISTED = 8  # views that `in_words` lists one by one
_TINY = 1e-12  # the minimum length that a vector is divided by


@dataclass(frozen=True, eq=False)
class Centres:
    """The common part of each view, to be removed: means (views, width), directions (views, count, width)."""

    means: Tensor
    directions: Tensor

    def taken_from(self, vectors: Views) -> Views:
        """Remove means and directions from views (..., views, width)."""
        if isinstance(vectors, Tensor):
            centred = vectors - self.means.to(vectors)
            return centred - _project(centred, self.directions.to(vectors))
        tensor = torch.from_numpy(np.ascontiguousarray(vectors))
        result: np.ndarray[Any, Any] = self.taken_from(tensor).numpy()
        return result

    def first(self, count: int) -> "Centres":
        """The same means with the first `count` directions."""
        return Centres(self.means, self.directions[:, :count])

    def pick(self, views: Sequence[int]) -> "Centres":
        """Select views."""
        return Centres(self.means[views], self.directions[views])

    def partly(self, less: Sequence[Less]) -> "Centres":
        """Keep the first directions of each view, as many as `less` says; None removes its mean too."""
        counts = torch.tensor([-1 if count is None else count for count in less], device=self.means.device)
        mask = torch.arange(int(counts.max().clamp_min(0)), device=counts.device) < counts[:, None]
        directions = self.directions[:, : mask.shape[1]] * mask[..., None]
        return Centres(self.means * (counts >= 0)[:, None], directions)

    def digest(self) -> str:
        """A hash of the values."""
        return tensor_digest({"means": self.means, "directions": self.directions}, label="centres")


@dataclass(frozen=True, repr=False)
class LayerViews(Mix):
    """The mean over the views of several sets of layers, each with its token pooling.

    Args:
        parts: The sets of layers, which differ in token pooling or in what is removed.
        scale: "unit" normalises views to length 1, as the lengths of a decoder's layers differ widely.
        less: The number of principal components to remove from every view in addition to its mean; None removes
            nothing. Or one value for each part.
        weights: The weight of each view, in the order of the parts' layers; equal by default. A negative weight
            removes what the view shares with the others.
        centres: The fitted means and components, padded with 0. They are ignored when mixes are compared.

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
            values = ", ".join(map(str, self.weights))
            raise MixError(f"The weights of views are numbers above 0, or below where others are above, not {values}")
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
        """The value of `less` for each part."""
        return self.less if isinstance(self.less, tuple) else (self.less,) * len(self.parts)

    @property
    def components(self) -> Less:
        """The maximum number of components that are removed; None if nothing is removed."""
        return max((less for less in self.less_of_parts if less is not None), default=None)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weight of each view, in the order of the parts' layers; their absolute values sum to 1."""
        weights = self.weights or (1.0,) * sum(len(part.layers) for part in self.parts)
        total = sum(map(abs, weights))
        return tuple(weight / total for weight in weights)

    @property
    def fitted(self) -> Centres | None:
        """The means and components to remove, None if there are none; raises `MixError` before they are fitted."""
        if self.components is not None and self.centres is None:
            raise MixError(f"{self} takes away means that were not fitted; load the model that has them, or search")
        return self.centres if self.components is not None else None

    def with_centres(self, centres: Centres) -> Self:
        """The same mix with these means and components."""
        views = sum(len(part.layers) for part in self.parts)
        if len(centres.means) != views or centres.directions.shape[:2] != (views, self.components):
            fitted = f"{len(centres.means)}, less {centres.directions.shape[1]} components"
            raise MixError(f"{self} has {views} views, less {self.components}, but its means are of {fitted}")
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
        """With a single token pooling: (..., len(layers), width) -> (..., width)"""
        if len(self.poolings) > 1:
            raise several_poolings_needed(self, picked.shape)
        return self._mean([self._pick(part, picked) for part in self.parts])

    def combine_poolings(self, views: Views) -> Views:
        """(batch, poolings, len(layers), width) -> (batch, width)"""
        numbers = {pooling: number for number, pooling in enumerate(self.poolings)}
        return self._mean([self._pick(part, views[:, numbers[part.pooling]]) for part in self.parts])

    @property
    def expression(self) -> str:
        """Such as `views(5,9 @ mean; 12 @ cls; unit; less 8)`, or with `less 8` after single parts."""
        options = [str(self.scale)] * (self.scale != "none")
        parts = list(self._part_texts())
        if isinstance(self.less, tuple):
            parts = [_with_less(part, less) for part, less in zip(parts, self.less, strict=True)]
        elif self.less is not None:
            options.append(_less_text(self.less))
        return f"views({'; '.join([*parts, *options])})"

    def __str__(self) -> str:
        return self.expression

    @property
    def in_words(self) -> str:
        """The text of the mix if it has few views, else the number of views of each pooling."""
        count = sum(len(part.layers) for part in self.parts)
        if count <= _MAX_LISTED:
            return self.expression
        texts = (
            _with_less(f"{len(part.layers)} of {part.pooling}", less)
            for part, less in zip(self.parts, self.less_of_parts, strict=True)
        )
        return f"{count} views ({', '.join(texts)})"

    def _part_texts(self) -> Iterator[str]:
        """The texts of the parts, with weights other than 1 as `n*layer`."""
        if not self.weights:
            yield from map(str, self.parts)
            return
        weights = iter(self.weights)
        for part in self.parts:
            layers = [(next(weights), layer) for layer in part.layers]
            texts = (f"{layer}" if weight == 1 else f"{weight:.12g}*{layer}" for weight, layer in layers)
            yield f"{','.join(texts)} @ {part.pooling}"

    def _pick(self, part: LayerSet, views: Views) -> Views:
        return pick_layers(views, [self.layers.index(layer) for layer in part.layers])

    def _mean(self, parts: list[Views]) -> Views:
        """The mean of the views of all parts: (..., views, width) each -> (..., width)"""
        if not isinstance(parts[0], Tensor):
            tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]
            mean: np.ndarray[Any, Any] = self._mean(tensors).numpy()
            return mean
        views = torch.cat(parts, dim=-2)
        views = views if self.fitted is None else self.fitted.taken_from(views)
        views = F.normalize(views, dim=-1, eps=_TINY) if self.scale == "unit" else views
        return weighted_sum(views, self.shares) if self.weights else views.mean(-2)


def _less_text(less: int) -> str:
    return f"less {less or 'mean'}"


def _with_less(views: str, less: Less) -> str:
    return views if less is None else f"{views} {_less_text(less)}"


def fit_centres(views: Tensor, count: int) -> Centres:
    """Fit every view's mean and first principal components on the views of texts: (texts, views, width)"""
    texts, _, width = views.shape
    if count and not 0 < count < min(texts - 1, width):
        raise MixError(
            f"{count} components of {texts} texts in {width} numbers leave nothing; give more, or take fewer"
        )
    means = views.mean(0)
    if not count:
        return Centres(means, means.new_zeros(len(means), 0, means.shape[1]))
    centred = (views - means).transpose(0, 1)
    directions = _top_eigenvectors((centred.mT @ centred).double(), count).to(means)
    return Centres(means, directions)


def _top_eigenvectors(matrices: Tensor, count: int) -> Tensor:
    """The eigenvectors of the largest eigenvalues, by subspace iteration: (n, width, width) -> (n, count, width)

    For a few directions of hundreds, this takes a tenth of the time of a full decomposition.
    """
    width = matrices.shape[-1]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(width, min(width, count + _OVERSAMPLES), generator=generator, dtype=matrices.dtype)
    basis = torch.linalg.qr(start.to(matrices.device)).Q.expand(len(matrices), -1, -1)
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(matrices @ basis).Q
    rotation = torch.linalg.eigh(basis.mT @ matrices @ basis)[1].flip(-1)
    directions: Tensor = (basis @ rotation)[..., :count].mT.contiguous()
    return directions


def _project(vectors: Tensor, directions: Tensor) -> Tensor:
    """Project vectors (..., views, width) onto each view's directions (views, count, width)."""
    lengths = torch.einsum("...vw,vcw->...vc", vectors, directions)
    return torch.einsum("...vc,vcw->...vw", lengths, directions)
