"""The dimensionality of embeddings: explained variance, and the effective rank (Roy & Vetterli 2007)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise import plots
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values
from layerwise.measures.model_on_pairs import ModelOnPairs, memoized
from layerwise.measures.vectors import centred

_SHOWN = (1, 2, 5, 10, 50, 100)  # directions whose shares the table adds up


def spectrum(embeddings: Tensor) -> Tensor:
    """The shares of variance by principal direction, falling, with a sum of 1. (n, d) -> (min(n, d),)

    Of the centred rows, as in PCA; NaN where all rows are the same.
    """
    variances = _singular_values(embeddings).square()
    return variances / variances.sum()


def effective_rank(embeddings: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values (Roy & Vetterli 2007). (n, d) -> scalar

    Of the centred rows, which the definition leaves open: otherwise the mean alone would fill a direction. The singular
    values themselves are taken, as in the paper, not their squares. From 1 (all on a line) to min(n - 1, d) (all
    directions used alike); NaN where all rows are the same.
    """
    return rank_of_spectrum(spectrum(embeddings))


def rank_of_spectrum(shares: Tensor) -> Tensor:
    """The effective rank of embeddings with these shares of variance by direction. (directions,) -> scalar"""
    values = shares.sqrt()  # the singular values, up to a factor that cancels
    entropy: Tensor = torch.special.entr(values / values.sum()).sum()
    return entropy.exp()


def _singular_values(embeddings: Tensor) -> Tensor:
    """Of the centred rows, falling, in float64: (n, d) -> (min(n, d),)

    By the smaller Gram matrix, several times cheaper than a decomposition of the rows. Values below its rounding error
    are set to 0: hundreds of them would add up to directions that nobody uses.
    """
    rows = centred("embeddings", embeddings).double()
    squares: Tensor = torch.linalg.eigvalsh(rows.T @ rows if len(rows) > rows.shape[1] else rows @ rows.T)
    rounding = torch.finfo(squares.dtype).eps * max(rows.shape) * squares[-1]
    return squares.masked_fill(squares < rounding, 0).sqrt().flip(0)


@dataclass(frozen=True, eq=False)
class Spectra(MeasureValue):
    """Explained variance ratios by principal component, descending, for every layer and the model's mix."""

    pooling: str
    labels: tuple[str, ...]
    shares: tuple[NDArray[np.float64], ...]
    sentences: int

    def rows(self) -> list[Row]:
        """Return a row per layer: the cumulative explained variance of its first components."""
        return [
            {"layers": label} | {f"first {count}": float(shares[:count].sum()) for count in _SHOWN}
            for label, shares in zip(self.labels, self.shares, strict=True)
        ]


@memoized
def measure_spectra(subject: ModelOnPairs, pooling: str | None = None) -> Spectra:
    """The shares of variance by principal direction of every layer and of the model's mix."""
    shares = tuple(spectrum(vectors).double().numpy() for vectors in embedding_spaces(subject, pooling))
    labels = (*map(str, range(subject.layers)), str(subject.model.mix))
    return Spectra(pooling or subject.pooling, labels, shares, len(subject.texts))


def embedding_spaces(subject: ModelOnPairs, pooling: str | None) -> Iterator[Tensor]:
    """The embeddings of all texts by each layer, then by the model's mix: (texts, width) each"""
    views = subject.pooled(pooling)
    for layer in range(subject.layers):
        yield torch.tensor(views[:, layer])
    yield torch.from_numpy(subject.embeddings)


def _plot(values: Values[Spectra], theme: "plots.Theme") -> "plots.Drawing":
    """Draw the middle layer, the last and the mix of one model, or the mixes of several."""
    if len(values) > 1:
        return plots.spectra(shares={name: value.shares[-1] for name, value in values.items()}, theme=theme)
    (value,) = values.values()
    *layers, mix = value.shares
    middle = len(layers) // 2
    shares = {f"layer {middle}": layers[middle], "last layer": layers[-1]}
    if len(mix) != len(layers[-1]) or not np.allclose(mix, layers[-1], atol=1e-5):  # else it is the last layer
        shares["own mix"] = mix
    return plots.spectra(shares=shares, theme=theme)


MEASURE = Measure(
    "spectrum",
    "Shares of variance by direction",
    "What the first principal directions hold of all variance: near 1 with few of them, the space is nearly flat.",
    measure_spectra,
    figures=(
        Figure(
            _plot,
            title="Shares of variance by direction",
            reading="A steep fall: a few directions hold everything. A slow one: the whole space is used.",
            section="space",
        ),
    ),
)
