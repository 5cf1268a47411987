"""How embeddings fill their space, by layer and for the model's own mix."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.analysis.geometry import alignment, anisotropy, uniformity
from layerwise.analysis.spectrum import rank_of_spectrum, spectrum
from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure

_SHOWN = (1, 2, 5, 10, 50, 100)  # directions whose shares a table adds up

_ALIKE = 4 / 5  # of the way from the lowest grade to the highest


@dataclass(frozen=True, eq=False)
class Geometry(Measured):
    """Four figures for every layer of one token pooling and, as the last, for the model's own mix: (layers + 1,) each.

    `alike` says which pairs alignment is of; it is NaN where there are none.
    """

    pooling: str
    labels: tuple[str, ...]
    anisotropy: NDArray[np.float64]
    alignment: NDArray[np.float64]
    uniformity: NDArray[np.float64]
    effective_rank: NDArray[np.float64]
    alike: str
    sentences: int

    def rows(self) -> list[Row]:
        """A row for each layer and the model's own mix."""
        names = ("anisotropy", "alignment", "uniformity", "effective_rank")
        columns = [getattr(self, name).tolist() for name in names]
        shown = [name.replace("_", " ") for name in names]
        return [
            {"layers": label} | dict(zip(shown, figures, strict=True))
            for label, *figures in zip(self.labels, *columns, strict=True)
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which pairs alignment is of."""
        return (f"layers by {self.pooling}, over {self.sentences:,} sentences; alignment is of {self.alike}",)


@dataclass(frozen=True, eq=False)
class Spectra(Measured):
    """The shares of variance by principal direction, falling, for every layer and the model's own mix."""

    pooling: str
    labels: tuple[str, ...]
    shares: tuple[NDArray[np.float64], ...]
    sentences: int

    def rows(self) -> list[Row]:
        """A row for each layer: what its first directions hold together."""
        return [
            {"layers": label} | {f"first {count}": float(shares[:count].sum()) for count in _SHOWN}
            for label, shares in zip(self.labels, self.shares, strict=True)
        ]


def geometry(material: Material, pooling: str | None = None) -> Geometry:
    """Anisotropy, alignment, uniformity and effective rank of every layer and of the model's own mix.

    Over all different texts; alignment over the pairs whose grade is in the highest fifth of the scale that the grades
    span.
    """
    return geometry_and_spectra(material, pooling)[0]


def geometry_and_spectra(material: Material, pooling: str | None = None) -> tuple[Geometry, Spectra]:
    """Both, for effective ranks are of the same decomposition as spectra."""
    alike, said = _alike(material)
    left, right = (torch.from_numpy(side[alike]) for side in material.places)
    found, shares = [], []
    for vectors in _spaces(material, pooling):
        own = spectrum(vectors).double()
        close = float(alignment(vectors[left], vectors[right])) if len(left) else np.nan
        found.append([float(anisotropy(vectors)), close, float(uniformity(vectors)), float(rank_of_spectrum(own))])
        shares.append(own.numpy())
    cone, aligned, spread, rank = np.array(found, dtype=np.float64).T
    name, labels, sentences = pooling or material.pooling, _labels(material), len(material.texts)
    space = Geometry(name, labels, cone, aligned, spread, rank, said, sentences)
    return space, Spectra(name, labels, tuple(shares), sentences)


def spectra(material: Material, pooling: str | None = None) -> Spectra:
    """The shares of variance by principal direction of every layer and of the model's own mix."""
    shares = tuple(spectrum(vectors).double().numpy() for vectors in _spaces(material, pooling))
    return Spectra(pooling or material.pooling, _labels(material), shares, len(material.texts))


def _spaces(material: Material, pooling: str | None) -> Iterator[Tensor]:
    """The embeddings of all texts in each layer, then by the model's own mix: (texts, width) each"""
    views = material.pooled(pooling)
    for layer in range(material.layers):
        yield torch.tensor(views[:, layer])
    yield torch.from_numpy(material.embeddings)


def _labels(material: Material) -> tuple[str, ...]:
    return (*map(str, range(material.layers)), str(material.model.mix))


def _alike(material: Material) -> tuple[NDArray[np.intp], str]:
    """The rows of the pairs that mean the same, and in words which they are."""
    gold = material.pairs.gold
    if gold is None or np.ptp(gold) == 0:
        return np.empty(0, dtype=np.intp), "none, for the pairs have no different scores"
    low, high = float(gold.min()), float(gold.max())
    least = low + _ALIKE * (high - low)
    rows = np.flatnonzero(gold >= least)
    return rows, f"{len(rows):,} pairs of score {least:g} or above, the highest fifth of {low:g} to {high:g}"


add_measure(
    Measure(
        "geometry",
        "Geometry by layer",
        "Anisotropy near 1: all sentences in a narrow cone. Alignment (alike pairs close) and uniformity (all spread "
        "out): lower is better. Effective rank: how many directions are in use.",
        geometry,
        options=("pooling",),
    )
)
add_measure(
    Measure(
        "spectrum",
        "Shares of variance by direction",
        "What the first principal directions hold of all variance: near 1 with few of them, the space is nearly flat.",
        spectra,
        options=("pooling",),
    )
)
