"""The mean of views: sets of layers (BERT-LC's combination), weighted layers, and views by several token poolings.

Layers are stored as inclusive spans; negative numbers count from the last layer, so `(-4, -1)` is the last four of any
encoder. Spans become layer numbers when the encoder's depth is known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import isclose, isfinite
from typing import NamedTuple, Self, SupportsIndex

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.encoder import parse_pooling, resolve_layer, valid_range
from layerwise.errors import MixError
from layerwise.mixes.centres import Centres
from layerwise.mixes.mix import SCALES, Fitted, Mix, Remove, Scale, View, pick
from layerwise.registry import check_known

# The names of the papers. `first-last` is layers 1 and L, as SimCSE defines it; `0+last` starts at the embeddings.
NAMED: dict[str, tuple[tuple[int, int], ...]] = {
    "last": ((-1, -1),),
    "first-last": ((1, 1), (-1, -1)),
    "0+last": ((0, 0), (-1, -1)),
    "all": ((0, -1),),
}
_NATIVE_POOLINGS = ("mean", "cls", "last", "weighted-mean")
_MAX_LISTED = 8  # views that `in_words` lists one by one
_TINY = 1e-12  # the minimum length that a vector is divided by


class Span(NamedTuple):
    """The layers `first` to `last` by a token pooling, without their means and `remove` components."""

    first: int
    last: int
    pooling: str = "mean"
    remove: Remove = None

    @property
    def is_mixed(self) -> bool:
        """Whether it starts from the first layer and ends from the last, so that its length depends on the depth."""
        return (self.first < 0) != (self.last < 0)

    @property
    def views(self) -> Iterator[View]:
        """Its layers, which may count from the last."""
        return (View(layer, self.pooling, self.remove) for layer in range(self.first, self.last + 1))

    def __str__(self) -> str:
        """`3`, `1-3`, or `-4..-2` if a minus could be read as a dash."""
        if self.first == self.last:
            return str(self.first)
        if self.first < 0 or self.last < 0:
            return f"{self.first}..{self.last}"
        return f"{self.first}{',' if self.last == self.first + 1 else '-'}{self.last}"


@dataclass(frozen=True, repr=False)
class Mean(Mix):
    """The mean of views.

    Args:
        spans: The layers with their token poolings. Equal sets are stored alike: merged, sorted, and grouped by token
            pooling and removal.
        weights: The weight of each view, in the order of the spans; equal by default. A negative weight removes what
            the view shares with the others.
        scale: "unit" normalises views to length 1, as the lengths of a decoder's layers differ widely.
        centres: The fitted means and components, padded with 0. They are ignored when mixes are compared.

    >>> Mean.of(0, (1, 3), 12, pooling="cls")
    Mean('0-3,12 @ cls')
    >>> Mean.weighted({1: 1, 12: 3})
    Mean('1:0.25,12:0.75 @ mean')
    >>> Mean.of(View(9), View(5, remove=8), View(9, remove=8), scale="unit")
    Mean('views(9 @ mean; 5,9 @ mean less 8; unit)')
    >>> Mean.of(5, 9, scale="unit", weights=(-1.0, 3.0))
    Mean('views(-1*5,3*9 @ mean; unit)')
    """

    spans: tuple[Span, ...]
    weights: tuple[float, ...] = ()
    scale: Scale = "none"
    centres: Centres | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        *layers: SupportsIndex | tuple[int, int] | View,
        pooling: str = "mean",
        remove: Remove = None,
        scale: Scale = "none",
        weights: Sequence[float] = (),
    ) -> Self:
        """The mean of layer numbers, of (first, last) ranges, or of views, which have a pooling of their own."""
        spans = []
        for item in layers:
            if isinstance(item, View):
                spans.append(Span(item.layer, item.layer, item.pooling, item.remove))
            else:
                first, last = item if isinstance(item, tuple) else (item, item)
                spans.append(Span(int(first), int(last), pooling, remove))
        return cls(tuple(spans), tuple(map(float, weights)), scale)

    @classmethod
    def weighted(cls, weights: Mapping[int, float], *, pooling: str = "mean") -> Self:
        """The weighted mean of layers; weights are normalised to a sum of 1, so their sum must be positive."""
        total = sum(weights.values())
        if not isfinite(total) or total <= 0:
            raise MixError(f"Layer weights must be finite and have a positive sum; this sum is {float(total)}")
        layers = {int(layer): float(weight) for layer, weight in weights.items() if weight}
        return cls.of(*layers, pooling=pooling, weights=tuple(layers.values()))

    def __post_init__(self) -> None:
        check_known(self.scale, SCALES, "scale")
        if not self.spans:
            raise MixError("A mean needs at least one layer")
        spans = [span._replace(pooling=str(parse_pooling(span.pooling))) for span in self.spans]
        for span in spans:
            if not span.is_mixed and span.first > span.last:
                raise MixError(f"The range {span.first}-{span.last} runs backwards")
            if span.remove is not None and span.remove < 0:
                raise MixError(f"Views cannot be less {span.remove}; take away the mean (0) or a number of components")
        groups = list(dict.fromkeys((span.pooling, span.remove) for span in spans))
        if self.weights:
            weights = _checked_weights(spans, self.weights)
            order = sorted(weights, key=lambda v: (groups.index((v.pooling, v.remove)), v.layer < 0, v.layer))
            spans = [Span(view.layer, view.layer, view.pooling, view.remove) for view in order]
            object.__setattr__(self, "weights", self._normalized([weights[view] for view in order]))
        merged = [span for group in groups for span in _merged(s for s in spans if (s.pooling, s.remove) == group)]
        object.__setattr__(self, "spans", tuple(merged))

    def _normalized(self, weights: Sequence[float]) -> tuple[float, ...]:
        """The weights, divided by their sum if plain layers are weighted; none if they are equal."""
        total = sum(weights)
        if self.is_plain and not isclose(total, 1.0, rel_tol=1e-12):  # normalised weights stay unchanged
            weights = [weight / total for weight in weights]
        return () if len(set(weights)) == 1 else tuple(weights)

    @cached_property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, in the order of the views."""
        return tuple(dict.fromkeys(span.pooling for span in self.spans))

    @cached_property
    def views(self) -> tuple[View, ...]:
        """The views, in the order of `weights` and of the centres."""
        if any(span.first < 0 or span.last < 0 for span in self.spans):
            raise MixError(f"{self} counts from the last layer: call resolve(depth) first")
        return tuple(view for span in self.spans for view in span.views)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The weight of each view. They sum to 1, or if views are scaled or by several poolings, their sizes do."""
        weights = self.weights or (1.0,) * len(self.views)
        total = sum(weights) if self.is_plain else sum(map(abs, weights))
        return tuple(weight / total for weight in weights)

    @property
    def terms(self) -> tuple[tuple[View, float, int], ...]:
        """Each view with its share, all in one vector."""
        return tuple((view, share, 0) for view, share in zip(self.views, self.shares, strict=True))

    @property
    def is_plain(self) -> bool:
        """Whether it is of layers by one token pooling, as they are, with weights of a positive sum if any."""
        is_one = self.scale == "none" and self.components is None and len({span.pooling for span in self.spans}) == 1
        return is_one and sum(self.weights or (1.0,)) > 0

    @property
    def listed_layers(self) -> tuple[int, ...] | None:
        """The layers of a plain set without weights, unless their number depends on the depth."""
        if not self.is_plain or self.weights or any(span.is_mixed for span in self.spans):
            return None
        return tuple(_static(self.spans))

    @property
    def is_native(self) -> bool:
        """Whether sentence-transformers averages the same; it pools afterwards, which differs for the maximum."""
        if not self.is_plain or self.is_prompted:
            return False
        return self.pooling in _NATIVE_POOLINGS or (self.pooling == "max" and self.is_layer)

    @property
    def is_layer(self) -> bool:
        """Whether it is of one layer, by one token pooling."""
        return len(self.spans) == 1 and self.spans[0].first == self.spans[0].last

    @property
    def components(self) -> Remove:
        """The maximum number of components that are removed; None if nothing is removed."""
        return max((span.remove for span in self.spans if span.remove is not None), default=None)

    @property
    def fitted(self) -> Centres | None:
        """The means and components to remove, None if there are none; raises `MixError` before they are fitted."""
        if self.components is not None and self.centres is None:
            raise MixError(f"{self} takes away means that were not fitted; load the model that has them, or search")
        return self.centres if self.components is not None else None

    def with_fitted(self, fitted: Fitted) -> Self:
        """The same mix with these `Centres`."""
        if not isinstance(fitted, Centres) or self.components is None:
            return super().with_fitted(fitted)
        views = len(self.views)
        if len(fitted.means) != views or fitted.directions.shape[:2] != (views, self.components):
            given = f"{len(fitted.means)}, less {fitted.directions.shape[1]} components"
            raise MixError(f"{self} has {views} views, less {self.components}, but its means are of {given}")
        return replace(self, centres=fitted)

    def with_weights(self, weights: Mapping[str, Tensor]) -> Self:
        """The same mix with these means and directions."""
        if self.components is None:
            return super().with_weights(weights)
        if set(weights) != {"means", "directions"}:
            raise MixError(f"{self} needs means and directions, not {', '.join(weights) or 'nothing'}")
        return self.with_fitted(Centres(weights["means"], weights["directions"]))

    def with_pooling(self, pooling: str) -> Self:
        """The same layers and weights by another token pooling."""
        if not self.is_plain:
            return super().with_pooling(pooling)
        return replace(self, spans=tuple(span._replace(pooling=pooling) for span in self.spans))

    def resolve(self, depth: int) -> Self:
        """The same views in layer numbers from 0."""
        resolved = []
        for span in self.spans:
            first, last = resolve_layer(span.first, depth), resolve_layer(span.last, depth)
            if first > last:
                raise MixError(f"The range {span} is empty: {valid_range(depth)}")
            resolved.append(span._replace(first=first, last=last))
        return replace(self, spans=tuple(resolved))

    def _combine(self, views: Tensor) -> Tensor:
        return self.mean_of(views, self.poolings, self.layers)

    def mean_of(self, views: Tensor, poolings: Sequence[str], layers: Sequence[int]) -> Tensor:
        """The mean from the views of these poolings and layers, or more: (..., poolings, layers, width)"""
        picked = pick(views, [(poolings.index(view.pooling), layers.index(view.layer)) for view in self.views])
        picked = picked if self.fitted is None else self.fitted.taken_from(picked)
        picked = F.normalize(picked, dim=-1, eps=_TINY) if self.scale == "unit" else picked
        if not self.weights:
            return picked[..., 0, :] if picked.shape[-2] == 1 else picked.mean(-2)
        total = picked[..., 0, :] * self.shares[0]  # without a tensor of weights, which would be copied to the GPU
        for number, share in enumerate(self.shares[1:], start=1):
            total = torch.add(total, picked[..., number, :], alpha=share)
        return total

    @property
    def layers_text(self) -> str:
        """The text of plain layers without their token pooling, such as `1-3,12`, `last-4` or `1:0.25,12:0.75`."""
        if self.weights:
            return ",".join(
                f"{layer}:{weight!r}" for layer, weight in zip(_static(self.spans), self.weights, strict=True)
            )
        return _spans_text(self.spans)

    def __str__(self) -> str:
        if self.is_plain:
            return f"{self.layers_text} @ {self.pooling}"
        shared = {span.remove for span in self.spans}
        options = [str(self.scale)] * (self.scale != "none")
        if len(shared) == 1 and self.components is not None:
            options.append(_less_text(self.components))
            return f"views({'; '.join([text for text, _ in self._group_texts()] + options)})"
        texts = [text + ("" if remove is None else f" {_less_text(remove)}") for text, remove in self._group_texts()]
        return f"views({'; '.join([*texts, *options])})"

    @property
    def in_words(self) -> str:
        """The text of the mix if it has few views, else the number of views of each pooling."""
        if self.is_plain or len(self.views) <= _MAX_LISTED:
            return str(self)
        texts = []
        for (pooling, remove), spans in groupby(self.spans, key=lambda span: (span.pooling, span.remove)):
            less = "" if remove is None else f" {_less_text(remove)}"
            texts.append(f"{sum(span.last - span.first + 1 for span in spans)} of {pooling}{less}")
        return f"{len(self.views)} views ({', '.join(texts)})"

    def _group_texts(self) -> Iterator[tuple[str, Remove]]:
        """The text of each token pooling's layers, with weights other than 1 as `n*layer`, and what they are less."""
        weights = iter(self.weights)
        for (pooling, remove), group in groupby(self.spans, key=lambda span: (span.pooling, span.remove)):
            spans = tuple(group)
            if self.weights:
                pairs = [(next(weights), layer) for layer in _static(spans)]
                text = ",".join(str(layer) if weight == 1 else f"{_number(weight)}*{layer}" for weight, layer in pairs)
            else:
                text = _spans_text(spans)
            yield f"{text} @ {pooling}", remove


def _checked_weights(spans: Sequence[Span], weights: Sequence[float]) -> dict[View, float]:
    """The weights by view; raises `MixError` if they do not fit."""
    if any(span.is_mixed for span in spans):
        raise MixError("Weights need layers whose number is known; write ranges such as 0..-1 layer by layer")
    views = [view for span in spans for view in span.views]
    if len(views) != len(weights):
        raise MixError(f"A mean of {len(views)} views has {len(weights)} weights; give one for each view")
    if len(set(views)) < len(views):
        raise MixError(f"A layer has two weights: {[view.layer for view in views]}")
    if not (isfinite(sum(map(abs, weights))) and all(weights) and max(weights) > 0):
        values = ", ".join(map(str, weights))
        raise MixError(f"The weights of views are numbers above 0, or below where others are above, not {values}")
    return dict(zip(views, weights, strict=True))


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans of a token pooling sorted and merged: those that count from 0, from the last, then the others."""
    mixed, last = set(), None
    for span in sorted(spans, key=lambda span: (span.first < 0, span.first, span.last)):
        if span.is_mixed:
            mixed.add(span)
        elif last is not None and (last.first < 0) == (span.first < 0) and span.first <= last.last + 1:
            last = last._replace(last=max(last.last, span.last))
        else:
            if last is not None:
                yield last
            last = span
    yield from [last] if last is not None else []
    yield from sorted(mixed, key=lambda span: (span.first, span.last))


def _static(spans: Iterable[Span]) -> list[int]:
    return [view.layer for span in spans for view in span.views]


def _spans_text(spans: Sequence[Span]) -> str:
    """The text that parses to these spans, as a name if there is one."""
    pairs = tuple((span.first, span.last) for span in spans)
    for name, known in NAMED.items():
        if pairs == known:
            return name
    if len(pairs) == 1 and pairs[0][1] == -1 and pairs[0][0] < -1:
        return f"last-{-pairs[0][0]}"
    return ",".join(map(str, spans))


def _less_text(remove: int) -> str:
    return f"less {remove or 'mean'}"


def _number(weight: float) -> str:
    return repr(weight).removesuffix(".0")
