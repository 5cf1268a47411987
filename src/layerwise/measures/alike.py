"""Which layers say the same: linear CKA of every layer with every other."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.analysis.alike import layer_cka
from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure


@dataclass(frozen=True, eq=False)
class LayersAlike(Measured):
    """Linear CKA of the layers of one token pooling: (layers, layers), 1 on the diagonal; NaN where nothing varies."""

    pooling: str
    cka: NDArray[np.float64]
    sentences: int

    def rows(self) -> list[Row]:
        """A row for each layer."""
        return [
            {"layer": layer} | {str(other): value for other, value in enumerate(values)}
            for layer, values in enumerate(self.cka.tolist())
        ]


def layers_alike(material: Material, pooling: str | None = None) -> LayersAlike:
    """Linear CKA of all layers of one token pooling, the model's own without it, over all different texts."""
    views = torch.tensor(material.pooled(pooling))
    return LayersAlike(pooling or material.pooling, layer_cka(views).double().numpy(), len(material.texts))


add_measure(
    Measure(
        "cka",
        "CKA: layers that say the same",
        "1 where two layers arrange the sentences alike, up to rotation and scale; blocks of high values along the "
        "diagonal are stages, and one layer of each is nearly enough.",
        layers_alike,
        options=("pooling",),
    )
)
