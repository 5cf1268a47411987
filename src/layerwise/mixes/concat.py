"""The concatenation of layers."""

from dataclasses import dataclass
from typing import Self

from layerwise.encoder import resolve_layer
from layerwise.errors import MixError
from layerwise.mixes.base import Mix, Views


@dataclass(frozen=True, repr=False)
class LayerConcat(Mix):
    """The concatenation of layers, in this order.

    >>> LayerConcat((12, 1)).width(768)
    1536
    """

    numbers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.numbers:
            raise MixError("A concatenation needs at least one layer")
        if len(set(self.numbers)) < len(self.numbers):
            raise MixError(f"A concatenation has a layer twice: {self.expression}")

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers in their order."""
        if min(self.numbers) < 0:
            raise MixError(f"{self} counts from the last layer: call resolve(depth) first")
        return self.numbers

    def resolve(self, depth: int) -> Self:
        """The concatenation in layer numbers from 0."""
        return type(self)(tuple(resolve_layer(layer, depth) for layer in self.numbers), pooling=self.pooling)

    def combine(self, picked: Views) -> Views:
        """The concatenation: (..., len(layers), width) -> (..., len(layers) * width)."""
        return picked.reshape(*picked.shape[:-2], -1)

    def width(self, width: int) -> int:
        """The layers' width times their number."""
        return len(self.numbers) * width

    @property
    def expression(self) -> str:
        """Such as `concat(1,12)`."""
        return f"concat({','.join(map(str, self.numbers))})"
