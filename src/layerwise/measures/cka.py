"""Similarity of layers' representations of the same sentences: linear CKA (Kornblith et al. 2019).

1 for the same up to rotation, shift and one scale, 0 where no direction of one varies with a direction of the other;
NaN where one does not vary. With more sentences than dimensions the (d, d) products are taken, else the (n, n) ones,
which give the same number: |YᵀX|² = ⟨XXᵀ, YYᵀ⟩.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise import plots
from layerwise.errors import InputError
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values, one_each, only_value
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.measures.vectors import centred


def linear_cka(left: Tensor, right: Tensor) -> Tensor:
    """Linear CKA of the rows of two representations. (n, d), (n, e) -> scalar"""
    x, y = _normalised("left", left), _normalised("right", right)
    if len(x) != len(y):
        raise InputError(f"left has {len(x)} rows and right {len(y)}; give two representations of the same sentences")
    x, y = (side.to(torch.promote_types(x.dtype, y.dtype)) for side in (x, y))
    with torch.autocast(x.device.type, enabled=False):
        if len(x) > max(x.shape[1], y.shape[1]):
            return (x.T @ y).square().sum() / (_norm(x.T @ x) * _norm(y.T @ y))
        x_gram, y_gram = x @ x.T, y @ y.T
        return (x_gram * y_gram).sum() / (_norm(x_gram) * _norm(y_gram))


def layer_cka(views: Tensor) -> Tensor:
    """Linear CKA of every layer with every other, each centred once. (n, layers, d) -> (layers, layers)"""
    if views.ndim != 3 or not views.numel():
        raise InputError(f"views: the shape is {tuple(views.shape)}; expected (sentences, layers, width)")
    layers = [_normalised("views", views[:, layer]) for layer in range(views.shape[1])]
    with torch.autocast(views.device.type, enabled=False):
        products = _products_by_width(layers) if len(views) > views.shape[2] else _products_by_rows(layers)
    norms = products.diagonal().sqrt()
    return products / norms.outer(norms)


def _products_by_width(layers: list[Tensor]) -> Tensor:
    """Squared norms of the (d, d) products of every two layers, each two once."""
    products = layers[0].new_empty(len(layers), len(layers))
    for place, layer in enumerate(layers):
        for other in range(place + 1):
            products[place, other] = products[other, place] = (layer.T @ layers[other]).square().sum()
    return products


def _products_by_rows(layers: list[Tensor]) -> Tensor:
    """Inner products of the (n, n) Gram matrices of every two layers, which equal those squared norms."""
    grams = torch.stack([(layer @ layer.T).flatten() for layer in layers])
    return grams @ grams.T


def _normalised(name: str, vectors: Tensor) -> Tensor:
    """Centre the rows and normalise the Frobenius norm to 1, so that fourth powers stay in range."""
    rows = centred(name, vectors)
    return rows / _norm(rows)


def _norm(matrix: Tensor) -> Tensor:
    return matrix.square().sum().sqrt()


@dataclass(frozen=True, eq=False)
class LayerCKA(MeasureValue):
    """Linear CKA of the layers of one token pooling: (layers, layers), 1 on the diagonal; NaN for constant layers."""

    pooling: str
    cka: NDArray[np.float64]
    sentences: int

    def rows(self) -> list[Row]:
        """Return a row per layer."""
        return [
            {"layer": layer} | {str(other): value for other, value in enumerate(values)}
            for layer, values in enumerate(self.cka.tolist())
        ]


def measure_cka(subject: ModelOnPairs, pooling: str | None = None) -> LayerCKA:
    """Measure linear CKA of all layers by one token pooling, by default that of the mix, over the unique texts."""
    views = torch.tensor(subject.pooled(pooling))
    return LayerCKA(pooling or subject.pooling, layer_cka(views).double().numpy(), len(subject.texts))


def _plot(values: Values[LayerCKA], theme: "plots.Theme") -> "plots.Drawing":
    return plots.layer_likeness(matrix=np.nan_to_num(only_value(values).cka), theme=theme)


def _note(values: Values[LayerCKA]) -> str:
    constant = any(np.isnan(value.cka).any() for value in values.values())
    return "A layer that is the same for all sentences is like no other; it is drawn as 0." if constant else ""


MEASURE = Measure(
    "cka",
    "CKA: layers that say the same",
    "1 where two layers arrange the sentences alike, up to rotation and scale; blocks of high values along the "
    "diagonal are stages, and one layer of each is nearly enough.",
    measure_cka,
    figures=(
        Figure(
            _plot,
            title="Layers alike (CKA)",
            reading="Nearer 1: two layers arrange the sentences alike; blocks along the diagonal are stages of the "
            "encoder.",
            section="space",
            groups=one_each,
            note=_note,
        ),
    ),
)
