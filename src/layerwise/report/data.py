"""The data of a report: the values of all measures of one or two models, and of trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from layerwise.evaluate import Matrix, gain_on_pairs
from layerwise.evidence import Gain
from layerwise.measures import (
    MeasureValue,
    ModelOnPairs,
    PairSimilarities,
    Values,
    measures_of,
    reporting_rows,
    short_names,
)
from layerwise.report.page import ExplainedPairs
from layerwise.report.pair_words import explained_pairs
from layerwise.search import Selection

V = TypeVar("V", bound=MeasureValue)


@dataclass(frozen=True, eq=False)
class ModelResults:
    """The values of one model by measure. `path` is the model's name as given by the user."""

    name: str
    path: str
    subject: ModelOnPairs
    values: Mapping[str, MeasureValue]

    @property
    def mix(self) -> str:
        """The model's mix."""
        return str(self.subject.model.mix)

    def find(self, kind: type[V]) -> V | None:
        """The value of a type, if the measure could be taken: scores need grades, a search enough pairs."""
        return next((value for value in self.values.values() if isinstance(value, kind)), None)

    def get(self, kind: type[V]) -> V:
        """The value of a type that every report has."""
        value = self.find(kind)
        if value is None:
            raise KeyError(kind.__name__)
        return value


@dataclass(frozen=True, eq=False)
class ReportData:
    """The data of a report: a model, optionally a baseline, and trainings.

    `gain` is how much better the model's similarities agree with the grades than the baseline's; `views` a search of
    prompts and token poolings; `matrix` every layer on several tasks; `explained` what the words and layers
    of some pairs add to their cosines.
    """

    model: ModelResults
    baseline: ModelResults | None = None
    gain: Gain | None = None
    others: Mapping[str, Values[MeasureValue]] = field(default_factory=dict)  # of both models, and of trainings
    views: Selection | None = None
    matrix: Matrix | None = None
    explained: ExplainedPairs = field(default_factory=ExplainedPairs)

    @property
    def models(self) -> tuple[ModelResults, ...]:
        """The baseline, if any, and the model."""
        return (self.model,) if self.baseline is None else (self.baseline, self.model)

    def values(self, measure: str) -> Values[MeasureValue]:
        """Return the values of a measure by model or training, where it was computed."""
        if measure in self.others:
            return self.others[measure]
        return {results.name: results.values[measure] for results in self.models if measure in results.values}


def measure_model(subject: ModelOnPairs, path: str, *, seed: int = 0) -> ModelResults:
    """Take every measure that the report shows and that the model and its pairs allow."""
    values = {}
    for measure in measures_of("model"):
        options = measure.in_report(subject)
        if options is not None and not (measure.graded and subject.pairs.gold is None):
            values[measure.name] = measure(subject, seed=seed, **options)
    return ModelResults(Path(path).name or path, path, subject, values)


def measure_trainings(folders: Sequence[str | Path]) -> dict[str, Values[MeasureValue]]:
    """Take every measure of trainings that the report shows: the values by the measure's name."""
    measures = [measure for measure in measures_of("trainings") if measure.in_report(folders) is not None]
    return {measure.name: measure(folders) for measure in measures if folders}


def report_data(
    model: ModelResults,
    baseline: ModelResults | None = None,
    *,
    trainings: Mapping[str, Values[MeasureValue]] | None = None,
    seed: int = 0,
) -> ReportData:
    """Join what was measured; with a baseline, also what differs between the two models.

    `seed` is that of the measures: scores are compared on the pairs that a search leaves to report.
    """
    others, explained = dict(trainings or {}), explained_pairs(model.subject.model, model.get(PairSimilarities))
    if baseline is None:
        return ReportData(model, others=others, explained=explained)
    names = short_names([model.path, baseline.path])
    model, baseline = replace(model, name=names[0]), replace(baseline, name=names[1])
    for measure in measures_of("models"):
        subjects = (baseline.subject, model.subject)
        others[measure.name] = {"": measure(*subjects, names=(baseline.name, model.name), unseen=True, seed=seed)}
    gold, rows = model.subject.pairs.gold, reporting_rows(model.subject, seed=seed)
    before, after = (results.get(PairSimilarities).mix_similarities[rows] for results in (baseline, model))
    gain = None if gold is None else gain_on_pairs(before, after, gold[rows])
    return ReportData(model, baseline, gain, others, explained=explained)
