"""The mean of a set of layers: BERT-LC's combination, including `last`, `last-4`, `first-last` and `0+last`.

Layers are stored as inclusive spans (first, last); negative numbers count from the last layer, so `(-4, -1)` is
the last four of any encoder. Spans become layer numbers when the encoder's depth is known.
"""

from dataclasses import dataclass
from typing import Self, SupportsIndex

from layerwise.encoder import resolve_layer, valid_range
from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views

Span = tuple[int, int]
Spans = tuple[Span, ...]
# The names of the papers. `first-last` is layers 1 and L, as SimCSE defines it; `0+last` starts at the embeddings.
NAMED: dict[str, Spans] = {
    "last": ((-1, -1),),
    "first-last": ((1, 1), (-1, -1)),
    "0+last": ((0, 0), (-1, -1)),
    "all": ((0, -1),),
}


@dataclass(frozen=True, repr=False)
class LayerSet(Mix):
    """The mean over a set of layers.

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


def is_backwards(span: Span) -> bool:
    """Whether a range ends before it starts, if that can be told without the depth."""
    first, last = span
    return first > last and (first < 0) == (last < 0)


def expand(spans: Spans, depth: int) -> tuple[int, ...]:
    """The unique layers of spans, sorted."""
    layers: set[int] = set()
    for first, last in spans:
        low, high = resolve_layer(first, depth), resolve_layer(last, depth)
        if low > high:
            raise MixError(f"The range {print_span((first, last))} is empty: {valid_range(depth)}")
        layers.update(range(low, high + 1))
    return tuple(sorted(layers))


def merge(spans: Spans) -> Spans:
    """Normalise spans, so that equal sets compare equal: those that count from 0 are merged, the others sorted."""
    merged: list[Span] = []
    for first, last in sorted(span for span in spans if 0 <= span[0] <= span[1]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return (*merged, *sorted({span for span in spans if not 0 <= span[0] <= span[1]}))


def print_spans(spans: Spans) -> str:
    """The text that parses to these spans, as a name if there is one."""
    for name, known in NAMED.items():
        if spans == known:
            return name
    if len(spans) == 1 and spans[0][1] == -1 and spans[0][0] < -1:
        return f"last-{-spans[0][0]}"
    return ",".join(map(print_span, spans))


def print_span(span: Span) -> str:
    """`3`, `1-3`, or `-4..-2` if a minus could be read as a dash."""
    first, last = span
    if first == last:
        return str(first)
    if first >= 0 and last == first + 1:
        return f"{first},{last}"
    return f"{first}-{last}" if first >= 0 and last >= 0 else f"{first}..{last}"
