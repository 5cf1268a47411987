"""The interface of measures: name, explanation, scope, values and figures.

A file of this room holds one measure: the maths as pure functions, the value as a frozen dataclass, the figures, and a
`Measure` that joins them. `registry.py` lists the files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from math import nan
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from layerwise import plots
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.registry import check_known

if TYPE_CHECKING:
    from layerwise.data import TaskRows
    from layerwise.model import LayerModel

Row = dict[str, Any]
SAMPLE = 512  # texts (or pairs) that the scalar measures of a training are taken on
Scalar = Callable[["LayerModel", "TaskRows"], float]
SECTIONS = {  # of the report, in order
    "scores": "What each layer is worth",
    "search": "What a search chooses",
    "smoothing": "Is it over-smoothed?",
    "space": "How the space is used",
    "attention": "Attention over layers",
    "training": "Training",
}


@dataclass(frozen=True, eq=False)
class LayerColumn:
    """A value per layer, (layers,), and for the model's mix: a column of the report's table.

    NaN stands for no number; `digits` is how many decimals are shown.
    """

    name: str
    values: NDArray[np.float64]
    mix: float = nan
    digits: int = 3
    help: str = ""


class MeasureValue(ABC):
    """The result of a measure: labelled arrays, and a plain table of them."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return a table for printing and JSON: the same keys in every row, None for missing values."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for readers of the table."""
        return ()

    def layer_columns(self) -> tuple[LayerColumn, ...]:
        """Columns of the report's table of layers."""
        return ()


V = TypeVar("V", bound=MeasureValue)
Values = Mapping[str, V]  # by the name of the model or the training


def together(values: Values[V]) -> list[Values[V]]:
    """All models in one drawing."""
    return [values] if values else []


def one_each(values: Values[V]) -> list[Values[V]]:
    """A drawing for each model."""
    return [{name: value} for name, value in values.items()]


def last_model(values: Values[V]) -> list[Values[V]]:
    """A drawing of only the report's model, which comes after its baseline."""
    return one_each(values)[-1:]


def several_models(values: Values[V]) -> list[Values[V]]:
    """All models in one drawing, if there are two or more."""
    return [values] if len(values) > 1 else []


def only_value(values: Values[V]) -> V:
    """Return the value of a figure that shows one model."""
    if len(values) > 1:
        raise InputError("this figure shows one model; draw each by itself")
    return next(iter(values.values()))


@dataclass(frozen=True)
class Figure:
    """A figure of a measure.

    Attributes:
        plot: (values by name, theme) -> drawing; what `uses` names comes by keyword.
        name: What `--figure` selects it by; a measure's first figure is drawn without.
        title: Its heading in the report.
        reading: How to read it, in one or two sentences.
        section: The section of the report that shows it; empty for none.
        groups: Which values share a drawing in the report.
        uses: Other measures that the drawing shows where they were taken: their values by name.
        note: A line under the figure, from the same arguments as `plot` but the theme.
    """

    plot: Callable[..., "plots.Drawing"]
    name: str = ""
    title: str = ""
    reading: str = ""
    section: str = ""
    groups: Callable[[Values[Any]], list[Values[Any]]] = together
    uses: tuple[str, ...] = ()
    note: Callable[..., str] = lambda *_, **__: ""

    def __post_init__(self) -> None:
        if self.section:
            check_known(self.section, SECTIONS, "section")

    def draw(
        self,
        values: Values[Any],
        *,
        related: Mapping[str, Values[Any]] | None = None,
        theme: "plots.Theme | None" = None,
    ) -> "plots.Drawing":
        """Draw values by name; `related` are those of other measures."""
        require("report", "a figure", "matplotlib")
        return self.plot(values, theme or plots.LIGHT, **self.used(related or {}))

    def used(self, related: Mapping[str, Values[Any]]) -> dict[str, Values[Any]]:
        """The values of the measures that the figure uses, none for those that were not taken."""
        return {name: related.get(name, {}) for name in self.uses}


def always(_subject: Any) -> dict[str, Any]:
    """The report takes the measure without options."""
    return {}


def never(_subject: Any) -> None:
    """The report leaves the measure out."""


@dataclass(frozen=True)
class Measure:
    """A measure by name.

    Attributes:
        name: What `--measure` selects it by.
        title: Of its table.
        reading: How to read it, in one line.
        take: (subject, **options) -> value; for `of="trainings"`, folders -> values by the training's name.
        of: The subject: a `ModelOnPairs`, two of them, or the folders of trainings.
        default: Whether it is taken where no measure is named.
        graded: Whether the pairs need scores.
        figures: The first is the one that `layerwise analyze` draws.
        scalars: Numbers that a training can log, by name.
        in_report: The options with which the report takes it, or None where the report leaves it out.
    """

    name: str
    title: str
    reading: str
    take: Callable[..., Any]
    of: Literal["model", "models", "trainings"] = "model"
    default: bool = False
    graded: bool = False
    figures: tuple[Figure, ...] = ()
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    in_report: Callable[[Any], Mapping[str, Any] | None] = always

    @property
    def options(self) -> tuple[str, ...]:
        """The keywords that the measure accepts."""
        subjects = 2 if self.of == "models" else 1
        return tuple(signature(self.take).parameters)[subjects:]

    def __call__(self, *subjects: Any, **options: Any) -> Any:
        """Compute the measure; unknown options are ignored."""
        return self.take(*subjects, **{name: value for name, value in options.items() if name in self.options})

    def figure(self, name: str | None = None) -> Figure:
        """Return a figure by name; by default the first."""
        if not self.figures:
            raise InputError(f"{self.name} has no figure of its own; write it as .json or .csv")
        if name is None:
            return self.figures[0]
        named = {figure.name: figure for figure in self.figures if figure.name}
        check_known(name, named, "figure")
        return named[name]
