"""Scores of layers: the rank correlation of their cosines with the scores of the pairs (SG-BERT, figure 1)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise import plots
from layerwise.errors import InputError
from layerwise.measures.chosen import ChosenLayers, reporting_rows
from layerwise.measures.measure import (
    Figure,
    LayerColumn,
    Measure,
    MeasureValue,
    Row,
    Values,
    last_model,
    several_models,
)
from layerwise.measures.model_on_pairs import POOLINGS, ModelOnPairs, memoized
from layerwise.measures.similarities import cosines_by_layer
from layerwise.metrics import correlations, cosine
from layerwise.mixes import parse_mix


@dataclass(frozen=True, eq=False)
class LayerScores(MeasureValue):
    """Spearman × 100 by token pooling and layer, (poolings, layers), and by the model's mix.

    NaN where all pairs are equally similar in a layer, as by the first token of layer 0.
    """

    poolings: tuple[str, ...]
    scores: NDArray[np.float64]
    mix: str
    mix_pooling: str
    mix_score: float
    pairs: int
    unseen: bool = False  # whether these are the pairs that a search of layers on the same subject leaves to report

    @property
    def best(self) -> tuple[str, int, float]:
        """The best single layer: its pooling, number and score; raises if no layer has a score."""
        if np.isnan(self.scores).all():
            raise InputError("No layer has a score: all pairs are equally similar in every one")
        row, layer = np.unravel_index(np.nanargmax(self.scores), self.scores.shape)
        return self.poolings[row], int(layer), float(self.scores[row, layer])

    def of(self, pooling: str) -> NDArray[np.float64]:
        """Return the scores by layer of one pooling, (layers,)."""
        scores: NDArray[np.float64] = self.scores[self.poolings.index(pooling)]
        return scores

    def rows(self) -> list[Row]:
        """Return a row per layer, then one for the model's mix."""
        rows = [
            {"layers": str(layer)} | dict(zip(self.poolings, column, strict=True)) | {"own mix": None}
            for layer, column in enumerate(self.scores.T.tolist())
        ]
        return [*rows, {"layers": self.mix} | dict.fromkeys(self.poolings) | {"own mix": self.mix_score}]

    @property
    def notes(self) -> tuple[str, ...]:
        """The best single layer, whose score is optimistic on the pairs that selected it."""
        pooling, layer, score = self.best
        cells = int((~np.isnan(self.scores)).sum())
        best = f"the top single layer is {layer} @ {pooling} with {score:.1f}, best of {cells} on these same pairs"
        return (f"{best}; the model's own mix, {self.mix}, has {self.mix_score:.1f}",)

    def layer_columns(self) -> tuple[LayerColumn, ...]:
        """Return a column per pooling; the mix is in the column of its pooling."""
        return tuple(
            LayerColumn(
                f"score, {pooling}",
                self.of(pooling),
                self.mix_score if pooling == self.mix_pooling else np.nan,
                digits=1,
                help="Spearman × 100 with the grades.",
            )
            for pooling in self.poolings
        )


@memoized
def measure_layer_scores(subject: ModelOnPairs, *, unseen: bool = False, seed: int = 0) -> LayerScores:
    """Spearman × 100 of the pairs' cosines with their scores, by layer and token pooling.

    Args:
        subject: The model and pairs with scores.
        unseen: Take only the pairs that a search of layers by the same seed leaves to report, so that the scores can be
            shown beside those of the search.
        seed: Of the split.
    """
    rows = reporting_rows(subject, seed=seed) if unseen else np.arange(len(subject.pairs))
    gold = subject.grades[rows]
    scores = np.empty((len(POOLINGS), subject.layers))
    for row, pooling in enumerate(POOLINGS):
        cosines = cosines_by_layer(subject, pooling)[rows]
        scores[row] = [correlations(column, gold)["spearman"] for column in cosines.T]
    mix_score = correlations(cosine(*subject.sides(subject.embeddings))[rows], gold)["spearman"]
    return LayerScores(POOLINGS, scores, str(subject.model.mix), subject.pooling, mix_score, len(rows), unseen=unseen)


def _plot(values: Values[LayerScores], theme: "plots.Theme", chosen: Values[ChosenLayers]) -> "plots.Drawing":
    """Draw scores by layer and pooling; of several models, each by the pooling of its best layer."""
    if len(values) == 1:
        ((name, value),) = values.items()
        return _plot_poolings(value, theme, chosen.get(name))
    curves = {f"{name}, {value.best[0]}": value.of(value.best[0]) for name, value in values.items()}
    plot = plots.before_after_curves if len(curves) == 2 else plots.layer_curves
    return plot(scores=curves, theme=theme)


def _plot_poolings(value: LayerScores, theme: "plots.Theme", chosen: ChosenLayers | None) -> "plots.Drawing":
    curves = {pooling: value.of(pooling) for pooling in value.poolings if not np.isnan(value.of(pooling)).all()}
    shown = chosen if value.unseen else None  # what is drawn together is measured on the same pairs
    best = None if shown is None else plots.MarkedMix(shown.best.test, parse_mix(shown.best.mix).layers)
    last = "mean" if chosen is None else parse_mix(chosen.last.mix).poolings[0]
    has_last = last in curves and not np.isnan(curves[last][-1])
    return plots.layer_curves(scores=curves, last=last if has_last else None, best=best, theme=theme)


def _note(values: Values[LayerScores], chosen: Values[ChosenLayers]) -> str:
    drawn = [chosen[name] for name in values if name in chosen]
    (value, *more) = values.values()
    if more or not drawn or not value.unseen:
        return ""
    poolings = " or ".join(drawn[0].poolings)
    return (
        f"The line across is the best set of layers by {poolings}; all scores are of the {value.pairs:,} pairs that "
        f"did not choose it."
    )


MEASURE = Measure(
    "scores",
    "Score by layer and token pooling",
    "Spearman x 100 of the pairs' cosine with their grades: higher is better; a peak below the last layer says "
    "that the last is not the one to take.",
    measure_layer_scores,
    default=True,
    graded=True,
    in_report=lambda _: {"unseen": True},
    figures=(
        Figure(
            _plot,
            title="Score by layer",
            reading="Higher is better; a peak left of the last layer says that the last is not the one to take.",
            section="scores",
            groups=last_model,
            uses=("chosen",),
            note=_note,
        ),
        Figure(
            _plot,
            title="Both models",
            reading="Each model by the token pooling of its best layer.",
            section="scores",
            groups=several_models,
            uses=("chosen",),
        ),
    ),
)
