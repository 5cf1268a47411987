"""What each layer is worth: the rank correlation of its cosines with the pairs' grades, and the cosines themselves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evaluate import correlations, cosine
from layerwise.measures.material import POOLINGS, Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure


@dataclass(frozen=True, eq=False)
class LayerScores(Measured):
    """Spearman × 100 by token pooling and layer, (poolings, layers), and by the model's own mix.

    NaN where a layer finds all pairs equally similar, as the first token of layer 0 does.
    """

    poolings: tuple[str, ...]
    scores: NDArray[np.float64]
    own: float
    mix: str
    pairs: int

    @property
    def layers(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(range(self.scores.shape[1]))

    @property
    def best(self) -> tuple[str, int, float]:
        """The best single layer: its pooling, number and score; refused where none has a score."""
        if np.isnan(self.scores).all():
            raise InputError("No layer has a score: all pairs are equally similar in every one")
        row, layer = np.unravel_index(np.nanargmax(self.scores), self.scores.shape)
        return self.poolings[row], int(layer), float(self.scores[row, layer])

    def of(self, pooling: str) -> NDArray[np.float64]:
        """One pooling's scores by layer: (layers,)"""
        own: NDArray[np.float64] = self.scores[self.poolings.index(pooling)]
        return own

    def rows(self) -> list[Row]:
        """A row for each layer, then the model's own mix by what it pools with."""
        found = [
            {"layers": str(layer)} | dict(zip(self.poolings, column, strict=True)) | {"own mix": None}
            for layer, column in enumerate(self.scores.T.tolist())
        ]
        return [*found, {"layers": self.mix} | dict.fromkeys(self.poolings) | {"own mix": self.own}]

    @property
    def notes(self) -> tuple[str, ...]:
        """The best single layer, which looks better on the pairs that picked it than it is."""
        pooling, layer, score = self.best
        cells = int((~np.isnan(self.scores)).sum())
        best = f"the top single layer is {layer} @ {pooling} with {score:.1f}, best of {cells} on these same pairs"
        return (f"{best}; the model's own mix, {self.mix}, has {self.own:.1f}",)


@dataclass(frozen=True, eq=False)
class PairSimilarities(Measured):
    """Every pair's cosine by layer, (pairs, layers), and by the model's own mix, (pairs,)."""

    pooling: str
    mix: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    gold: NDArray[np.float64] | None
    layers: NDArray[np.float64]
    own: NDArray[np.float64]

    def rows(self) -> list[Row]:
        """A row for each pair."""
        gold = [None] * len(self.left) if self.gold is None else self.gold.tolist()
        return [
            {"left": left, "right": right, "gold": grade}
            | {f"layer {number}": value for number, value in enumerate(by_layer)}
            | {"own mix": own}
            for left, right, grade, by_layer, own in zip(
                self.left, self.right, gold, self.layers.tolist(), self.own.tolist(), strict=True
            )
        ]


def layer_scores(material: Material) -> LayerScores:
    """Spearman × 100 of the pairs' cosine with their grades, for every layer by every token pooling."""
    gold = material.grades
    found = np.empty((len(POOLINGS), material.layers))
    for row, pooling in enumerate(POOLINGS):
        similarities = _by_layer(material, pooling)
        found[row] = [correlations(column, gold)["spearman"] for column in similarities.T]
    own = correlations(cosine(*material.sides(material.embeddings)), gold)["spearman"]
    return LayerScores(POOLINGS, found, own, str(material.model.mix), len(material.pairs))


def pair_similarities(material: Material, pooling: str | None = None) -> PairSimilarities:
    """Every pair's cosine by each layer of one token pooling, the model's own without it."""
    name = material.pooling if pooling is None else pooling
    own = cosine(*material.sides(material.embeddings)).astype(np.float64)
    pairs = material.pairs
    similarities = _by_layer(material, name)
    return PairSimilarities(name, str(material.model.mix), pairs.left, pairs.right, pairs.gold, similarities, own)


def _by_layer(material: Material, pooling: str) -> NDArray[np.float64]:
    """Every pair's cosine in each layer: (pairs, layers), a layer at a time"""
    views = material.pooled(pooling)
    columns = [cosine(*material.sides(views[:, layer])) for layer in range(material.layers)]
    return np.stack(columns, axis=1)


add_measure(
    Measure(
        "scores",
        "Score by layer and token pooling",
        "Spearman x 100 of the pairs' cosine with their grades: higher is better; a peak below the last layer says "
        "that the last is not the one to take.",
        layer_scores,
        graded=True,
    )
)
add_measure(
    Measure(
        "pairs",
        "Every pair's similarity by layer",
        "Cosine of each pair, layer by layer: a good layer puts alike pairs above unlike ones.",
        pair_similarities,
        options=("pooling",),
    )
)
