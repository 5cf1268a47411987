"""Every pair's cosine, layer by layer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.measures.measure import Measure, MeasureValue, Row
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.metrics import cosine


@dataclass(frozen=True, eq=False)
class PairSimilarities(MeasureValue):
    """Every pair's cosine by layer, (pairs, layers), and by the model's mix, (pairs,)."""

    pooling: str
    mix: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    grades: NDArray[np.float64] | None
    layers: NDArray[np.float64]
    mix_similarities: NDArray[np.float64]

    @property
    def pairs(self) -> list[tuple[str, str, float | None]]:
        """Left, right and grade of each pair."""
        grades = [None] * len(self.left) if self.grades is None else self.grades.tolist()
        return list(zip(self.left, self.right, grades, strict=True))

    def rows(self) -> list[Row]:
        """Return a row per pair."""
        return [
            {"left": left, "right": right, "grade": grade}
            | {f"layer {number}": value for number, value in enumerate(by_layer)}
            | {"own mix": mix}
            for (left, right, grade), by_layer, mix in zip(
                self.pairs, self.layers.tolist(), self.mix_similarities.tolist(), strict=True
            )
        ]


def measure_pair_similarities(subject: ModelOnPairs, pooling: str | None = None) -> PairSimilarities:
    """Measure every pair's cosine in each layer by one token pooling, by default that of the model's mix."""
    name = subject.pooling if pooling is None else pooling
    mix = cosine(*subject.sides(subject.embeddings)).astype(np.float64)
    pairs = subject.pairs
    layers = cosines_by_layer(subject, name)
    return PairSimilarities(
        name, str(subject.model.mix), tuple(pairs.left), tuple(pairs.right), pairs.gold, layers, mix
    )


def cosines_by_layer(subject: ModelOnPairs, pooling: str) -> NDArray[np.float64]:
    """Every pair's cosine in each layer: (pairs, layers), a layer at a time"""
    views = subject.pooled(pooling)
    columns = [cosine(*subject.sides(views[:, layer])) for layer in range(subject.layers)]
    return np.stack(columns, axis=1)


MEASURE = Measure(
    "pairs",
    "Every pair's similarity by layer",
    "Cosine of each pair, layer by layer: a good layer puts alike pairs above unlike ones.",
    measure_pair_similarities,
)
