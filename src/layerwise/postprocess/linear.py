"""Linear maps fitted on embeddings: whitening, and the removal of the strongest directions.

Both are `(x - mean) @ matrix`, so both can be saved as a linear layer that plain sentence-transformers loads.
"""

import logging

import numpy as np
import torch
from torch import nn

from layerwise.errors import InputError
from layerwise.mixes import fit_centres
from layerwise.postprocess.base import Exact, Postprocess

log = logging.getLogger(__name__)
_MIN_VARIANCE = 1e-10  # relative to the largest; smaller ones are rounding errors, which whitening would amplify


class LinearPostprocess(Postprocess):
    """`(x - mean_) @ matrix_`, in float64.

    Attributes:
        mean_: (in,).
        matrix_: (in, out).
    """

    mean_: Exact
    matrix_: Exact

    def module(self) -> nn.Linear:
        """`weight = matrix_.T`, `bias = -mean_ @ matrix_`."""
        self.check_fitted()
        linear = nn.Linear(*self.matrix_.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(self.matrix_.T))
            linear.bias.copy_(torch.from_numpy(-self.mean_ @ self.matrix_))
        return linear

    def _transform(self, embeddings: Exact) -> Exact:
        return (embeddings - self.mean_) @ self.matrix_


class Whitening(LinearPostprocess):
    """Embeddings of mean 0 whose dimensions are uncorrelated and have variance 1 (Su et al. 2021).

    `matrix_ = U Λ^(-1/2)` of the covariance `U Λ Uᵀ`, largest variance first. A direction whose variance is below
    1e-10 of the largest is dropped, which is logged: this happens with fewer than width + 1 rows, or with linearly
    dependent dimensions.

    Args:
        dimensions: The number of directions to keep; by default all that are not dropped.

    Attributes:
        variances_: The variance along each direction, before whitening.

    >>> Whitening(dimensions=2).fit_transform(np.random.default_rng(0).normal(size=(50, 8))).shape
    (50, 2)
    """

    name = "whitening"
    variances_: Exact

    def __init__(self, dimensions: int | None = None) -> None:
        self.dimensions = dimensions

    def _fit(self, embeddings: Exact) -> None:
        rows, width = embeddings.shape
        dimensions = self.dimensions
        if dimensions is not None and not 1 <= dimensions <= width:
            raise InputError(
                f"dimensions {dimensions} is not possible: the embeddings are {width} wide; give 1 to {width}"
            )
        mean = embeddings.mean(axis=0)
        centred = embeddings - mean
        variances, directions = np.linalg.eigh(centred.T @ centred / rows)
        variances, directions = np.maximum(variances[::-1], 0.0), directions[:, ::-1]
        largest = directions[np.abs(directions).argmax(axis=0), np.arange(width)]
        directions = directions * np.sign(largest)  # their sign is arbitrary; so that fits are reproducible
        rank = int((variances > _MIN_VARIANCE * max(variances[0], np.finfo(np.float64).tiny)).sum())
        if not rank:
            raise InputError(f"{rows} embeddings without any difference cannot be whitened; give more of them")
        if dimensions is not None and dimensions > rank:
            raise InputError(
                f"{rows} embeddings vary in {rank} directions only, so whitening cannot keep {dimensions} dimensions; "
                f"give more of them, or at most dimensions={rank}"
            )
        if dimensions is None and rank < width:
            log.info("Whitening keeps %d of %d directions: %d embeddings vary in no more", rank, width, rows)
        rank = rank if dimensions is None else dimensions
        self.mean_, self.variances_ = mean, variances[:rank]
        self.matrix_ = directions[:, :rank] / np.sqrt(self.variances_)


class RemoveComponents(LinearPostprocess):
    """Embeddings without their strongest common directions (Mu & Viswanath 2018, "all-but-the-top").

    The mean is subtracted, and the projections on the first principal directions. With `centre=False` the mean is not
    subtracted and the directions are those of the uncentred embeddings, as in Arora et al. (2017), who remove one.

    Args:
        count: The number of directions; 0 subtracts the mean only.
        centre: Subtract the mean first.

    Attributes:
        directions_: The removed directions, of length 1: (in, count).
    """

    name = "component removal"
    directions_: Exact

    def __init__(self, count: int = 1, *, centre: bool = True) -> None:
        self.count = count
        self.centre = centre

    def _fit(self, embeddings: Exact) -> None:
        rows, width = embeddings.shape
        if not 0 <= self.count < width:
            raise InputError(f"count {self.count} is not possible: the embeddings are {width} wide")
        if self.count >= rows:
            raise InputError(f"{rows} embeddings have less than {self.count} directions; give more of them")
        centres = fit_centres(torch.from_numpy(embeddings).unsqueeze(1), self.count, centre=self.centre)
        self.mean_, self.directions_ = centres.means[0].numpy(), centres.directions[0].numpy().T
        self.matrix_ = np.eye(width) - self.directions_ @ self.directions_.T
