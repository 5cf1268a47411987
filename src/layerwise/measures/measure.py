"""What a measure is: a name, how to read it, and a function from a model on some text to a small value."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from layerwise.measures.material import Material
from layerwise.registry import Registry

Row = dict[str, Any]


class Measured(ABC):
    """What a measure gives: arrays with their labels, and a plain table of them."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """A table for printing and JSON: the same keys in every row, None where there is no value."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the table should know beside it."""
        return ()


@dataclass(frozen=True)
class Measure:
    """A measure by name.

    `reading` says in one line how to read it; `options` are the keywords that `take` knows beside the material;
    `graded` ones need pairs with scores.
    """

    name: str
    title: str
    reading: str
    take: Callable[..., Measured]
    options: tuple[str, ...] = ()
    graded: bool = False

    def __call__(self, material: Material, **options: Any) -> Measured:
        """Measure; options that it does not know are left out."""
        return self.take(material, **{name: value for name, value in options.items() if name in self.options})


MEASURES: Registry[Measure] = Registry("measure")


def add_measure(measure: Measure) -> Measure:
    """Make a measure known by its name."""
    return MEASURES.register(measure.name)(measure)
