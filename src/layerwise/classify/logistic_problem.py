"""Folds of a logistic regression that share their rows: probabilities and gradients of all of them together."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.threads import one_thread_each

_ALIGNED = 8  # columns are padded to a multiple of this, which matrix products on a GPU like


@dataclass(frozen=True)
class Axes:
    """The rows with a column of ones (and zeros), and the principal axes of their second moments."""

    rows: Tensor  # (sets, n, d)
    values: Tensor  # (sets, d, 1, 1)
    vectors: Tensor  # (sets, d, d)
    width: int


@dataclass(frozen=True)
class FoldProblem:
    """Some folds. Weights are (sets, d, folds, columns); a fold's objective is divided by C times its rows."""

    axes: Axes
    targets: Tensor  # (n, 1, columns)
    share: Tensor  # (n, folds, 1): 1 / the fold's rows where it is trained, else 0
    penalty: Tensor  # (folds, 1)
    absent: Tensor  # (folds, columns): classes without a training row
    ceiling: Tensor  # (folds, 1): times the axes' values, no curvature is above this

    def probabilities(self, weights: Tensor) -> Tensor:
        """(sets, d, folds, columns) -> (sets, n, folds, columns)"""
        scores = product(self.axes.rows, weights)
        if weights.shape[-1] == 1:
            return scores.sigmoid_()
        return scores.masked_fill_(self.absent, -math.inf).softmax(-1)

    def gradient(self, probabilities: Tensor, weights: Tensor) -> Tensor:
        """Of the objective, in the weights' shape. Overwrites the probabilities."""
        errors = probabilities.sub_(self.targets).mul_(self.share)
        slope = product(self.axes.rows.mT, errors)
        slope[:, : self.axes.width] += self.penalty * weights[:, : self.axes.width]
        return slope

    def turned(self, values: Tensor) -> Tensor:
        """To coordinates along the axes. (sets, d, folds, columns) -> the same"""
        return product(self.axes.vectors.mT, values)

    def back(self, values: Tensor) -> Tensor:
        """From coordinates along the axes. (sets, d, folds, columns) -> the same"""
        return product(self.axes.vectors, values)

    def zeros(self) -> Tensor:
        """Where every path starts."""
        sets, _, d = self.axes.rows.shape
        return self.axes.rows.new_zeros(sets, d, *self.absent.shape)


def principal_axes(features: Tensor) -> Axes:
    """(sets, n, width) -> the rows with their column of ones, and their axes"""
    sets, n, width = features.shape
    rows = features.new_zeros(sets, n, -(-(width + 1) // _ALIGNED) * _ALIGNED)
    rows[..., :width], rows[..., width] = features, 1.0
    values, vectors = _eigh(rows.mT @ rows / n)
    return Axes(rows, values.clamp_min(0)[..., None, None], vectors, width)


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and vectors, by one thread: OpenBLAS takes ten times as long with two."""
    with one_thread_each():
        values, vectors = torch.linalg.eigh(matrices)
    return values, vectors


def absent_classes(labels: Tensor, training: Tensor, classes: int) -> Tensor:
    """(n,), (folds, n) -> (folds, columns)"""
    if classes == 2:
        return torch.zeros(len(training), 1, dtype=torch.bool, device=training.device)
    return torch.stack([~training[:, labels == label].any(1) for label in range(classes)], 1)


def fold_problem(axes: Axes, labels: Tensor, training: Tensor, classes: int, c: float) -> FoldProblem:
    """Labels (n,) and the training rows of some folds (folds, n) as a problem to solve."""
    size = training.sum(1)[:, None].to(axes.rows.dtype)
    wanted = torch.arange(1 if classes == 2 else 0, classes, device=labels.device)
    bound = 0.25 if classes == 2 else 0.5
    return FoldProblem(
        axes,
        targets=(labels[:, None, None] == wanted).to(axes.rows.dtype),
        share=(training / size).mT[..., None],
        penalty=1 / (c * size),
        absent=absent_classes(labels, training, classes),
        ceiling=bound * len(labels) / size,
    )


def product(matrices: Tensor, values: Tensor) -> Tensor:
    """(sets, a, b), (sets, b, folds, columns) -> (sets, a, folds, columns)"""
    product = matrices @ values.flatten(-2)
    return product.reshape(*product.shape[:2], *values.shape[2:])
