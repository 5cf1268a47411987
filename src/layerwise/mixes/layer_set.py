"""A set of layers, averaged: BERT-LC's combination, and with it `last`, `last-4`, `first-last` and `0+last`."""

from dataclasses import dataclass
from typing import Self, SupportsIndex

from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views
from layerwise.mixes.spans import Span, Spans, expand, is_backwards, merge, print_span, print_spans


@dataclass(frozen=True, repr=False)
class LayerSet(Mix):
    """The mean over some layers.

    >>> LayerSet.of(0, 1, 12)
    LayerSet('0,1,12 @ mean')
    """

    spans: Spans

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.spans:
            raise MixError("A set of layers needs at least one layer")
        for span in self.spans:
            if is_backwards(span):
                raise MixError(f"The range {print_span(span)} runs backwards")
        object.__setattr__(self, "spans", merge(self.spans))

    @classmethod
    def of(cls, *layers: SupportsIndex | Span, pooling: str = "mean") -> Self:
        """A set from layer numbers and (first, last) ranges."""
        spans = tuple((int(item), int(item)) if isinstance(item, SupportsIndex) else item for item in layers)
        return cls(spans, pooling=pooling)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers, sorted."""
        if any(first < 0 or last < first for first, last in self.spans):
            raise MixError(f"{self} counts from the last layer: call resolve(depth) first")
        return tuple(layer for first, last in self.spans for layer in range(first, last + 1))

    def resolve(self, depth: int) -> Self:
        """The set in layer numbers from 0."""
        return type(self).of(*expand(self.spans, depth), pooling=self.pooling)

    def combine(self, picked: Views) -> Views:
        """The mean: (..., len(layers), width) -> (..., width)."""
        return picked[..., 0, :] if picked.shape[-2] == 1 else picked.mean(-2)

    @property
    def expression(self) -> str:
        """Such as `0,1,12`, `1-3,12` or `last-4`."""
        return print_spans(self.spans)
