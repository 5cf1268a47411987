"""Changes between two models on the same pairs, such as by training."""

from dataclasses import dataclass

import numpy as np

from layerwise import plots
from layerwise.errors import InputError
from layerwise.measures.geometry import measure_geometry
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values, only_value
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.measures.names import short_names
from layerwise.measures.scores import measure_layer_scores
from layerwise.measures.setsim import measure_setsim
from layerwise.measures.toksim import measure_toksim

_BETTER = {
    "score of the own mix": "higher",
    "score of the last layer, mean": "higher",
    "score of the best single layer": "higher",
    "alignment": "lower",
    "uniformity": "lower",
}


@dataclass(frozen=True)
class Change:
    """One value of two models. `better` is "higher", "lower", or "" if neither is better."""

    name: str
    first: float
    second: float
    better: str

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True, eq=False)
class ModelChanges(MeasureValue):
    """The scalar numbers of two models, the names of which are `first` and `second`."""

    first: str
    second: str
    changes: tuple[Change, ...]

    def rows(self) -> list[Row]:
        """Return a row per value: first that of the baseline, then that of the model."""
        return [
            {"figure": change.name, "model": change.second, "against": change.first}
            | {"difference": change.difference, "better": change.better or None}
            for change in self.changes
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which model is which."""
        return (f"model: {self.second}; against: {self.first}",)


def measure_changes(
    first: ModelOnPairs,
    second: ModelOnPairs,
    names: tuple[str, str] | None = None,
    *,
    unseen: bool = False,
    seed: int = 0,
) -> ModelChanges:
    """All scalar values of two models on the same pairs, such as an encoder before and after training.

    `unseen` and `seed` are those of `measure_layer_scores`.
    """
    if (first.pairs.left, first.pairs.right) != (second.pairs.left, second.pairs.right):
        raise InputError("two models are compared on the same pairs; these differ")
    before, after = (_numbers(subject, unseen, seed) for subject in (first, second))
    changes = tuple(Change(name, before[name], after[name], _BETTER.get(name, "")) for name in before)
    return ModelChanges(*(names or (first.name, second.name)), changes)


def _numbers(subject: ModelOnPairs, unseen: bool, seed: int) -> dict[str, float]:
    """Return the values by name, in display order."""
    numbers = {}
    if subject.pairs.gold is not None:
        scores = measure_layer_scores(subject, unseen=unseen, seed=seed)
        numbers["score of the own mix"] = scores.mix_score
        numbers["score of the last layer, mean"] = float(scores.of("mean")[-1])
        numbers["score of the best single layer"] = scores.best[2]
    numbers["TokSim of the last layer"] = float(measure_toksim(subject).means[-1])
    setsim = measure_setsim(subject)
    for pooling in setsim.poolings:
        numbers[f"SetSim of the last two layers, {pooling}"] = float(setsim.of(pooling)[-1])
    return numbers | {name: float(column[-1]) for name, column in measure_geometry(subject).columns.items()}


def _plot(values: Values[ModelChanges], theme: "plots.Theme") -> "plots.Drawing":
    value = only_value(values)
    changes = [change for change in value.changes if not np.isnan(change.difference)]
    first, second = short_names([value.first, value.second])
    return plots.dumbbells(
        measures=[change.name for change in changes],
        before=[change.first for change in changes],
        after=[change.second for change in changes],
        names=(first, second),
        theme=theme,
    )


MEASURE = Measure(
    "against",
    "Compared with another model",
    "Every figure of both, and the model's less the other's.",
    measure_changes,
    of="models",
    default=True,
    figures=(
        Figure(
            _plot,
            title="Every figure of both",
            reading="Each row has a scale of its own, from 0; the longer the bar between the dots, the more has "
            "changed.",
            section="scores",
        ),
    ),
)
