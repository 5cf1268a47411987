"""The concatenation of layers, or of means of layers, each with its token pooling."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Self, SupportsIndex

import torch
from torch import Tensor

from layerwise.errors import MixError
from layerwise.mixes.mean import Mean
from layerwise.mixes.mix import Mix, View


@dataclass(frozen=True, repr=False)
class Concat(Mix):
    """The embeddings of several means of layers side by side, in this order.

    >>> Concat.of(12, 1).width(768)
    1536
    >>> Concat((Mean.of(-1, pooling="cls"), Mean.of(-1)))
    Concat('last @ cls | last @ mean')
    """

    parts: tuple[Mean, ...]

    @classmethod
    def of(cls, *layers: SupportsIndex, pooling: str = "mean") -> Self:
        """The concatenation of layer numbers."""
        return cls(tuple(Mean.of(layer, pooling=pooling) for layer in layers))

    @classmethod
    def joined(cls, mixes: Iterable[Mix]) -> Self:
        """The concatenation of means of layers and of concatenations."""
        parts = list[Mean]()
        for mix in mixes:
            if not isinstance(mix, Mean | Concat):
                raise MixError(f"{mix} cannot be joined; a join takes sets, weights and concatenations of layers")
            parts += mix.parts if isinstance(mix, Concat) else [mix]
        return cls(tuple(parts))

    def __post_init__(self) -> None:
        for part in self.parts:
            if not part.is_plain:
                raise MixError(f"{part} cannot be joined; a join takes sets, weights and concatenations of layers")
        if not self.parts or (len(self.parts) == 1 and not self.parts[0].is_layer):
            raise MixError("A concatenation needs at least one layer, or two mixes")
        if len(set(self.parts)) < len(self.parts):
            raise MixError(f"A concatenation has a part twice: {self}")

    @cached_property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, in the order of the parts."""
        return tuple(dict.fromkeys(part.pooling for part in self.parts))

    @property
    def views(self) -> tuple[View, ...]:
        """The views of all parts, each once."""
        return tuple(dict.fromkeys(view for part in self.parts for view in part.views))

    @property
    def terms(self) -> tuple[tuple[View, float, int], ...]:
        """Each part's views in a vector of its own."""
        return tuple((view, share, number) for number, part in enumerate(self.parts) for view, share, _ in part.terms)

    def resolve(self, depth: int) -> Self:
        """The parts in layer numbers from 0."""
        return type(self)(tuple(part.resolve(depth) for part in self.parts))

    def with_pooling(self, pooling: str) -> Self:
        """The same layers by another token pooling, if all are by one."""
        if len(self.poolings) > 1:
            return super().with_pooling(pooling)
        return type(self)(tuple(part.with_pooling(pooling) for part in self.parts))

    def _combine(self, views: Tensor) -> Tensor:
        return torch.cat([part.mean_of(views, self.poolings, self.layers) for part in self.parts], dim=-1)

    def width(self, width: int) -> int:
        """The layers' width times the number of parts."""
        return len(self.parts) * width

    def __str__(self) -> str:
        return " | ".join(self._texts())

    def _texts(self) -> Iterator[str]:
        """The parts' texts; adjacent single layers of a token pooling as `concat(1,12)`."""
        for (pooling, is_layer), group in groupby(self.parts, key=lambda part: (part.pooling, part.is_layer)):
            parts = list(group)
            if is_layer and (len(parts) > 1 or len(self.parts) == 1):
                yield f"concat({','.join(str(part.spans[0]) for part in parts)}) @ {pooling}"
            else:
                yield from map(str, parts)
