"""The geometry of embeddings: alignment and uniformity (Wang & Isola 2020), anisotropy (Ethayarajh 2019).

Lower is better for the first two; a high anisotropy says that all sentences lie in a narrow cone.
"""

from dataclasses import dataclass
from math import inf, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise import plots
from layerwise.data import TaskRows
from layerwise.errors import InputError
from layerwise.measures.measure import SAMPLE, Figure, LayerColumn, Measure, MeasureValue, Row, Values
from layerwise.measures.model_on_pairs import ModelOnPairs, memoized
from layerwise.measures.spectra import embedding_spaces, measure_spectra, rank_of_spectrum
from layerwise.measures.vectors import as_float, check_matrix, unit_vectors
from layerwise.model import LayerModel

_BLOCK = 1024  # rows against all others at a time, so that memory grows with the number of embeddings alone
_ALIKE = 4 / 5  # of the highest score (or of the range of scores): pairs that mean the same


def alignment(left: Tensor, right: Tensor, *, power: float = 2) -> Tensor:
    """The mean distance, to a power, of pairs that should be alike, as unit vectors. (n, d), (n, d) -> scalar"""
    _check_positive("power", power)
    if left.shape != right.shape:
        raise InputError(f"The shapes differ: left {tuple(left.shape)}, right {tuple(right.shape)}; give pairs")
    differences = _units("left", left) - _units("right", right)
    if power == 2:
        return differences.square().sum(dim=-1).mean()
    distances: Tensor = torch.linalg.vector_norm(differences, dim=-1)
    return distances.pow(power).mean()


def uniformity(embeddings: Tensor, *, t: float = 2) -> Tensor:
    """The log of the mean of exp(-t * squared distance) over all different pairs, as unit vectors. (n, d) -> scalar

    Exact: time grows with n², memory with n unless a gradient is asked for. 0 where all are the same, about -2t where
    all are at right angles, as random ones of many dimensions are.
    """
    _check_positive("t", t)
    units = _units("embeddings", embeddings)
    count = len(units)
    if count < 2:
        raise InputError("uniformity is of pairs, and one embedding came; give at least two")
    sums = []
    with torch.autocast(units.device.type, enabled=False):
        for start in range(0, count - 1, _BLOCK):
            rows, later = units[start : start + _BLOCK], units[start:]
            exponents = 2 * t * (rows @ later.T - 1)  # the squared distance of unit vectors is 2 - 2 cosine
            pairs = torch.ones_like(exponents, dtype=torch.bool).triu(1)
            sums.append(exponents.masked_fill(~pairs, -torch.inf).flatten().logsumexp(dim=0))
    return torch.stack(sums).logsumexp(dim=0) - log(count * (count - 1) / 2)


def anisotropy(embeddings: Tensor) -> Tensor:
    """Compute the mean cosine of all pairs of rows. (n, d) -> scalar; 1 if all are parallel, about 0 at random

    Exact, without an (n, n) matrix: the cosines of all rows, each with itself included, add up to the squared length of
    the sum of the unit vectors.
    """
    units = _units("embeddings", embeddings)
    count = len(units)
    if count < 2:
        raise InputError("anisotropy is of pairs, and one embedding came; give at least two")
    return (units.sum(dim=0).square().sum() - units.square().sum()) / (count * (count - 1))


def _units(name: str, vectors: Tensor) -> Tensor:
    """Normalise rows to length 1; raise for zero rows. (n, d) -> (n, d)"""
    check_matrix(name, vectors)
    norms = torch.linalg.vector_norm(as_float(vectors), dim=-1)
    if (norms == 0).any():
        raise InputError(f"{name}: row {int(norms.argmin())} is zero and has no direction; leave it out")
    return unit_vectors(vectors)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < inf:
        raise InputError(f"{name} {value} is not possible; give a number above 0")


@dataclass(frozen=True, eq=False)
class Geometry(MeasureValue):
    """Four values for every layer of one token pooling and, last, for the model's mix: (layers + 1,) each.

    `alike` describes the pairs that alignment is taken over; it is NaN where there are none.
    """

    pooling: str
    labels: tuple[str, ...]
    anisotropy: NDArray[np.float64]
    alignment: NDArray[np.float64]
    uniformity: NDArray[np.float64]
    effective_rank: NDArray[np.float64]
    alike: str
    sentences: int

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:
        """The four by name."""
        return {
            "anisotropy": self.anisotropy,
            "alignment": self.alignment,
            "uniformity": self.uniformity,
            "effective rank": self.effective_rank,
        }

    @property
    def mix_is_last_layer(self) -> bool:
        """Whether the model's mix is its last layer, up to a scale."""
        return bool(np.allclose(self.anisotropy[-1], self.anisotropy[-2], atol=1e-5))

    def rows(self) -> list[Row]:
        """Return a row per layer and for the model's mix."""
        return [
            {"layers": label} | {name: float(column[place]) for name, column in self.columns.items()}
            for place, label in enumerate(self.labels)
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which pairs alignment is of."""
        return (f"layers by {self.pooling}, over {self.sentences:,} sentences; alignment is of {self.alike}",)

    def layer_columns(self) -> tuple[LayerColumn, ...]:
        """The four of each layer, and of the mix."""
        shown = {
            "anisotropy": (3, "Mean cosine of different sentences."),
            "alignment": (3, f"Mean squared distance of {self.alike}; lower is better."),
            "uniformity": (2, "How spread out sentences are; lower is better."),
            "effective rank": (1, "How many directions are in use."),
        }
        return tuple(
            LayerColumn(name, column[:-1], float(column[-1]), *shown[name]) for name, column in self.columns.items()
        )


@memoized
def measure_geometry(subject: ModelOnPairs, pooling: str | None = None) -> Geometry:
    """Anisotropy, alignment, uniformity and effective rank of every layer and of the model's mix.

    Over all different texts; alignment over the pairs whose score is in the highest fifth of the range of scores.
    """
    alike, description = _alike_pairs(subject.pairs)
    left, right = (torch.from_numpy(side[alike]) for side in subject.positions)
    spectra = measure_spectra(subject, pooling)
    numbers = [
        (
            float(anisotropy(vectors)),
            float(alignment(vectors[left], vectors[right])) if len(left) else np.nan,
            float(uniformity(vectors)),
            float(rank_of_spectrum(torch.from_numpy(shares))),
        )
        for vectors, shares in zip(embedding_spaces(subject, pooling), spectra.shares, strict=True)
    ]
    cone, aligned, uniform, rank = np.array(numbers, dtype=np.float64).T
    return Geometry(spectra.pooling, spectra.labels, cone, aligned, uniform, rank, description, spectra.sentences)


def _alike_pairs(pairs: TaskRows) -> tuple[NDArray[np.intp], str]:
    """The rows of the pairs that mean the same, and which they are in words."""
    gold = pairs.gold
    if gold is None or np.ptp(gold) == 0:
        return np.empty(0, dtype=np.intp), "none, for the pairs have no different scores"
    low, high = float(gold.min()), float(gold.max())
    threshold = low + _ALIKE * (high - low)
    rows = np.flatnonzero(gold >= threshold)
    return rows, f"{len(rows):,} pairs of score {threshold:g} or above, the highest fifth of {low:g} to {high:g}"


def _mix_alignment(model: LayerModel, pairs: TaskRows) -> float:
    """Of the model's embeddings, over the first pairs of four fifths of the highest score or more."""
    gold = np.empty(0) if pairs.gold is None else pairs.gold
    rows = np.flatnonzero(gold >= _ALIKE * gold.max(initial=-inf))[:SAMPLE]
    if not len(rows):
        return np.nan
    sides = [model.encode([side[row] for row in rows], convert_to_tensor=True) for side in (pairs.left, pairs.right)]
    return float(alignment(*sides))


def _mix_uniformity(model: LayerModel, pairs: TaskRows) -> float:
    """Of the model's embeddings."""
    return float(uniformity(model.encode(pairs.texts[:SAMPLE], convert_to_tensor=True)))


def _plot(values: Values[Geometry], theme: "plots.Theme") -> "plots.Drawing":
    """Four panels, with a level for the mix of a model that is not its last layer."""
    panels = {
        name: {model: value.columns[name][:-1] for model, value in values.items()}
        for name in ("anisotropy", "uniformity", "alignment", "effective rank")
    }
    panels = {
        name: curves for name, curves in panels.items() if not all(np.isnan(curve).all() for curve in curves.values())
    }
    mixed = {model: value for model, value in values.items() if not value.mix_is_last_layer}
    levels = {name: {model: float(value.columns[name][-1]) for model, value in mixed.items()} for name in panels}
    levels = {name: {model: level for model, level in of.items() if not np.isnan(level)} for name, of in levels.items()}
    return plots.geometry_by_layer(measures=panels, mix=levels if mixed else None, theme=theme)


def _note(values: Values[Geometry]) -> str:
    return "Token poolings: " + ", ".join(f"{value.pooling} of {name}" for name, value in values.items()) + "."


_READING = (
    "Anisotropy near 1: all sentences in a narrow cone. Alignment (alike pairs close) and uniformity (all spread out): "
    "lower is better. Effective rank: how many directions are in use."
)
MEASURE = Measure(
    "geometry",
    "Geometry by layer",
    _READING,
    measure_geometry,
    default=True,
    figures=(
        Figure(
            _plot,
            title="Geometry by layer",
            reading=f"{_READING} A dashed level is the own mix of a model that takes more than its last layer.",
            section="space",
            note=_note,
        ),
    ),
    scalars={"alignment": _mix_alignment, "uniformity": _mix_uniformity},
)
