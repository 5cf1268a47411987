"""SetSim (SSCL, equation 2, figure 1): how similar a sentence's vectors are in neighbouring layers."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise import plots
from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.measures.measure import SAMPLE, Figure, LayerColumn, Measure, MeasureValue, Row, Values
from layerwise.measures.model_on_pairs import ModelOnPairs, memoized
from layerwise.measures.toksim import TokSim
from layerwise.measures.vectors import unit_vectors
from layerwise.model import LayerModel

_POOLINGS = ("cls", "mean")
_BATCH = 2048  # sentences at once


def layer_similarity(views: Tensor) -> Tensor:
    """SetSim (SSCL eq. 2): the cosine of layers i and i + 1. (b, layers + 1, d) -> (b, layers)

    In float32 at least; the cosines of a zero vector are 0.
    """
    if views.ndim != 3 or views.shape[1] < 2:
        raise InputError(
            f"views: the shape is {tuple(views.shape)}; expected (sentences, layers, width) with at least two layers"
        )
    units = unit_vectors(views)
    return (units[:, :-1] * units[:, 1:]).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class SetSim(MeasureValue):
    """The mean cosine of layers i and i + 1 over sentences, by token pooling: (poolings, layers - 1)"""

    poolings: tuple[str, ...]
    means: NDArray[np.float64]
    sentences: int

    def of(self, pooling: str) -> NDArray[np.float64]:
        """Return the values of one pooling, (layers - 1,)."""
        means: NDArray[np.float64] = self.means[self.poolings.index(pooling)]
        return means

    def at_upper_layer(self, pooling: str) -> NDArray[np.float64]:
        """Return the values of one pooling at the upper layer of each pair, NaN at layer 0, (layers,)."""
        return np.concatenate([[np.nan], self.of(pooling)])

    def rows(self) -> list[Row]:
        """Return a row per pair of adjacent layers."""
        return [
            {"layers": f"{lower}-{lower + 1}"} | dict(zip(self.poolings, column, strict=True))
            for lower, column in enumerate(self.means.T.tolist())
        ]

    def layer_columns(self) -> tuple[LayerColumn, ...]:
        """The cosine to the layer below."""
        return (LayerColumn("SetSim", self.at_upper_layer("mean"), help="Cosine to the layer below, of mean vectors."),)


@memoized
def measure_setsim(subject: ModelOnPairs) -> SetSim:
    """SetSim of neighbouring layers, by the first token and by the mean, over all different texts."""
    means = [_mean_similarity(subject.pooled(pooling)) for pooling in _POOLINGS]
    return SetSim(_POOLINGS, np.stack(means), len(subject.texts))


def _mean_similarity(views: Array) -> NDArray[np.float64]:
    """(texts, layers, width) -> (layers - 1,), in chunks, as views may be memory-mapped"""
    total = np.zeros(views.shape[1] - 1)
    for start in range(0, len(views), _BATCH):
        batch = torch.tensor(views[start : start + _BATCH])
        total += layer_similarity(batch).double().sum(dim=0).numpy()
    return total / len(views)


def _last_layer_similarity(model: LayerModel, pairs: TaskRows) -> float:
    """SetSim of the last two layers, by the model's token pooling."""
    views = torch.from_numpy(model.encoder.encode_layers(pairs.texts[:SAMPLE], model.mix.poolings[0]))
    return float(layer_similarity(views)[:, -1].mean())


def _plot(values: Values[SetSim], theme: "plots.Theme") -> "plots.Drawing":
    curves = {
        pooling if len(values) == 1 else f"{name}, {pooling}": value.at_upper_layer(pooling)
        for name, value in values.items()
        for pooling in value.poolings
    }
    return plots.layer_curves(scores=curves, measure="cosine to the layer below", theme=theme)


def _plot_with_toksim(values: Values[SetSim], theme: "plots.Theme", toksim: Values[TokSim]) -> "plots.Drawing":
    return plots.smoothing_curves(
        setsim={name: value.of("mean") for name, value in values.items()},
        toksim={name: value.means for name, value in toksim.items()},
        theme=theme,
    )


MEASURE = Measure(
    "setsim",
    "SetSim: likeness of neighbouring layers",
    "Cosine of a sentence's embedding in one layer and the next: near 1 the layer adds nothing, and the encoder is "
    "over-smoothed.",
    measure_setsim,
    default=True,
    figures=(
        Figure(_plot),
        Figure(
            _plot_with_toksim,
            title="SetSim and TokSim",
            reading="Near 1 a layer repeats the one below (SetSim, of mean vectors), or all tokens of a sentence are "
            "alike (TokSim).",
            section="smoothing",
            uses=("toksim",),
        ),
    ),
    scalars={"layer-similarity": _last_layer_similarity},
)
