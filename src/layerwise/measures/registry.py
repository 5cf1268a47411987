"""All measures by name. A new measure is a file of this room, with its `MEASURE`, and one line here."""

from importlib import import_module

from layerwise.measures.measure import Measure, Scalar
from layerwise.registry import Registry

_FILES = (  # in the order of the report
    "scores",
    "changes",
    "setsim",
    "toksim",
    "tokens",
    "geometry",
    "spectra",
    "cka",
    "projection",
    "chosen",
    "attention",
    "similarities",
    "training",
    "negatives",
)
_IN_ORDER: list[Measure] = [import_module(f"layerwise.measures.{file}").MEASURE for file in _FILES]
MEASURES: Registry[Measure] = Registry("measure")
for _measure in _IN_ORDER:
    MEASURES.register(_measure.name)(_measure)


def all_measures() -> list[Measure]:
    """Return all measures, in the order of the report."""
    return list(_IN_ORDER)


def measures_of(subject: str) -> list[Measure]:
    """The measures of a "model", of two "models" or of "trainings", in the order of the report."""
    return [measure for measure in _IN_ORDER if measure.of == subject]


def scalar_measures() -> dict[str, Scalar]:
    """Return the measures with a single value for a model on pairs, which trainings can log at evaluations."""
    return {name: scalar for measure in _IN_ORDER for name, scalar in measure.scalars.items()}
