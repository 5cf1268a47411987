"""Many logistic regressions at once, which share their rows and differ in the rows that train them.

The objective is scikit-learn's, C · Σ log loss over the training rows + ½‖w‖², with an unpenalised intercept; two
classes are binomial (one column of weights), more are multinomial. A round is two matrix products for all folds, then
a step along the principal axes of the rows, with one step length for each axis, fold and class.

There are two solutions, whose accuracies on sentence vectors differ by up to three points:

- `fit_optimum` minimises the objective (accelerated gradients with an upper bound of the curvature).
- `fit_like_saga` stops where scikit-learn's SAGA does, far from the optimum: at tolerance 0.01 SAGA stops when an
  epoch changes no weight by more than 1 % of the largest, which regularises more than C does. With SAGA's step, an
  epoch is a fixed time on the gradient flow from zero, and SAGA's noise is small: so the flow is integrated, one epoch
  per round, by an exponential integrator, with the same stopping rule. It stops within a few epochs of SAGA; its
  weights differ from SAGA's little more than those of two random seeds.

The axes are those of all rows, training or not; they affect the path, not the solution.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.threads import one_thread_each

_ALIGNMENT = 8  # columns are padded to a multiple of this, for fast matrix products on a GPU
_CORRECTION = 0.6  # share of the correction: 1 suits smooth paths, but oscillates if curvature is a third larger
Path = tuple[Tensor, Tensor, Tensor]  # weights; the rounds and whether it converged, (sets, folds) both


@dataclass(frozen=True)
class LogisticFits:
    """One regression for each fold, with a leading axis of sets if the features had one."""

    weights: Tensor
    """(..., folds, columns, width), with 1 column for two classes, else one for each class."""
    intercepts: Tensor
    """(..., folds, columns); minus infinity for a class that the fold's training rows lack."""
    rounds: Tensor
    """(..., folds): epochs, or steps."""
    converged: Tensor
    """(..., folds): whether the tolerance was met within the rounds."""

    def __getitem__(self, index: int) -> Self:
        """The fits of one of several sets."""
        return type(self)(self.weights[index], self.intercepts[index], self.rounds[index], self.converged[index])

    def predict(self, features: Tensor) -> Tensor:
        """The class of every row by every fold: (..., n, width) -> (..., folds, n)."""
        folds, columns, width = self.weights.shape[-3:]
        flat = self.weights.reshape(*self.weights.shape[:-3], folds * columns, width)
        scores = features @ flat.mT + self.intercepts.flatten(-2)[..., None, :]
        scores = scores.reshape(*scores.shape[:-1], folds, columns)
        return ((scores[..., 0] > 0).long() if columns == 1 else scores.argmax(-1)).mT


def fit_like_saga(
    features: Tensor, labels: Tensor, training: Tensor, *, c: float = 10.0, tolerance: float = 0.01, epochs: int = 200
) -> LogisticFits:
    """Reproduce `LogisticRegression(solver="saga", C=c, tol=tolerance, max_iter=epochs)`, without its noise.

    Args:
        features: (n, width), or (sets, n, width) to solve every fold for each of several matrices.
        labels: (n,) integers from 0.
        training: (folds, n) bool: the training rows of each fold.
        c: scikit-learn's C, the inverse of the penalty.
        tolerance: A fold stops when an epoch changes no weight by more than this share of its largest weight.
        epochs: The maximum number of epochs.
    """
    return _fit(features, labels, training, c, lambda problem: follow(problem, tolerance, epochs))


def fit_optimum(
    features: Tensor, labels: Tensor, training: Tensor, *, c: float = 10.0, tolerance: float = 1e-5, rounds: int = 5000
) -> LogisticFits:
    """Minimise the objective, like `LogisticRegression(C=c, tol=tolerance)`. Shapes are as for `fit_like_saga`.

    A fold stops when no entry of the gradient of its objective, divided by C times its rows, exceeds the tolerance.
    """
    return _fit(features, labels, training, c, lambda problem: minimise(problem, tolerance, rounds))


def sets_at_once(rows: int, width: int, folds: int, classes: int, device: torch.device) -> int:
    """The number of feature matrices for one call: as many as fit in a GPU's workspace; 1 on a CPU."""
    if device.type != "cuda":
        return 1
    return max(1, _workspace(device) // (12 * rows * width + folds * _fold_bytes(rows, width, classes)))


@dataclass(frozen=True)
class Axes:
    """The rows with a column of ones (padded with zeros), and the principal axes of their second moments."""

    rows: Tensor  # (sets, n, d)
    values: Tensor  # (sets, d, 1, 1)
    vectors: Tensor  # (sets, d, d)
    width: int


@dataclass(frozen=True)
class FoldProblem:
    """A batch of folds. Weights are (sets, d, folds, columns); a fold's objective is divided by C times its rows."""

    axes: Axes
    targets: Tensor  # (n, 1, columns)
    share: Tensor  # (n, folds, 1): 1 / the fold's number of rows for its training rows, else 0
    penalty: Tensor  # (folds, 1)
    absent: Tensor  # (folds, columns): classes without a training row
    ceiling: Tensor  # (folds, 1): times the axes' values, an upper bound of the curvature

    def probabilities(self, weights: Tensor) -> Tensor:
        """The predicted probabilities: (sets, d, folds, columns) -> (sets, n, folds, columns)"""
        scores = product(self.axes.rows, weights)
        if weights.shape[-1] == 1:
            return scores.sigmoid_()
        return scores.masked_fill_(self.absent, -math.inf).softmax(-1)

    def gradient(self, probabilities: Tensor, weights: Tensor) -> Tensor:
        """The gradient of the objective, in the weights' shape. Overwrites the probabilities."""
        errors = probabilities.sub_(self.targets).mul_(self.share)
        gradient = product(self.axes.rows.mT, errors)
        gradient[:, : self.axes.width] += self.penalty * weights[:, : self.axes.width]
        return gradient

    def rotate(self, values: Tensor) -> Tensor:
        """To coordinates along the axes: (sets, d, folds, columns) -> same shape"""
        return product(self.axes.vectors.mT, values)

    def rotate_back(self, values: Tensor) -> Tensor:
        """From coordinates along the axes: (sets, d, folds, columns) -> same shape"""
        return product(self.axes.vectors, values)

    def zeros(self) -> Tensor:
        """The starting weights."""
        sets, _, d = self.axes.rows.shape
        return self.axes.rows.new_zeros(sets, d, *self.absent.shape)


def _fit(
    features: Tensor, labels: Tensor, training: Tensor, c: float, solve: Callable[[FoldProblem], Path]
) -> LogisticFits:
    """Solve as many folds at a time as fit in the workspace."""
    _check(features, labels, training, c)
    axes = principal_axes(features if features.ndim == 3 else features[None])
    classes = int(labels.max()) + 1
    sets, rows, width = features.shape[:-2].numel(), *features.shape[-2:]
    chunk_size = max(1, _workspace(features.device) // (sets * _fold_bytes(rows, width, classes)))
    problems = (
        fold_problem(axes, labels, training[start : start + chunk_size], classes, c)
        for start in range(0, len(training), chunk_size)
    )
    paths = [solve(problem) for problem in problems]
    weights = torch.cat([path[0] for path in paths], 2).permute(0, 2, 3, 1)  # (sets, folds, columns, d)
    intercepts = weights[..., axes.width].masked_fill(absent_classes(labels, training, classes), -math.inf)
    rounds, converged = (torch.cat([path[i] for path in paths], 1) for i in (1, 2))
    values = (weights[..., : axes.width], intercepts, rounds, converged)
    return LogisticFits(*(values if features.ndim == 3 else (value[0] for value in values)))


def _workspace(device: torch.device) -> int:
    """The bytes of the workspace. With more, short paths would only wait for long ones."""
    return min(2**31, int(torch.cuda.mem_get_info(device)[0]) // 4) if device.type == "cuda" else 2**28


def _fold_bytes(rows: int, width: int, classes: int) -> int:
    """The bytes of a fold in float32: predictions and weights, with the copies of a round."""
    return 4 * (1 if classes == 2 else classes) * (4 * rows + 8 * width)


def _check(features: Tensor, labels: Tensor, training: Tensor, c: float) -> None:
    n = features.shape[-2]
    if labels.shape != (n,) or training.shape[1:] != (n,) or training.dtype != torch.bool:
        raise InputError(
            f"features {tuple(features.shape)}, labels {tuple(labels.shape)} and training {tuple(training.shape)} "
            f"don't fit together: expected (n, width), (n,) and (folds, n) of bool"
        )
    if not bool(training.any(1).all()) or int(labels.min()) < 0 or int(labels.max()) < 1:
        raise InputError("a regression needs labels from 0 to at least 1 and a training row in every fold")
    if not c > 0:
        raise InputError(f"C is {c}; it must be above 0")


def principal_axes(features: Tensor) -> Axes:
    """Append the column of ones to rows (sets, n, width), and compute their principal axes."""
    sets, n, width = features.shape
    rows = features.new_zeros(sets, n, -(-(width + 1) // _ALIGNMENT) * _ALIGNMENT)
    rows[..., :width], rows[..., width] = features, 1.0
    values, vectors = _eigh(rows.mT @ rows / n)
    return Axes(rows, values.clamp_min(0)[..., None, None], vectors, width)


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors in one thread: with two, OpenBLAS takes ten times as long."""
    with one_thread_each():
        values, vectors = torch.linalg.eigh(matrices)
    return values, vectors


def absent_classes(labels: Tensor, training: Tensor, classes: int) -> Tensor:
    """A mask of the classes without a training row: (n,), (folds, n) -> (folds, columns)"""
    if classes == 2:
        return torch.zeros(len(training), 1, dtype=torch.bool, device=training.device)
    return torch.stack([~training[:, labels == label].any(1) for label in range(classes)], 1)


def fold_problem(axes: Axes, labels: Tensor, training: Tensor, classes: int, c: float) -> FoldProblem:
    """The problem of labels (n,) and the training rows of folds (folds, n)."""
    size = training.sum(1)[:, None].to(axes.rows.dtype)
    column_classes = torch.arange(1 if classes == 2 else 0, classes, device=labels.device)
    bound = 0.25 if classes == 2 else 0.5
    return FoldProblem(
        axes,
        targets=(labels[:, None, None] == column_classes).to(axes.rows.dtype),
        share=(training / size).mT[..., None],
        penalty=1 / (c * size),
        absent=absent_classes(labels, training, classes),
        ceiling=bound * len(labels) / size,
    )


def product(matrices: Tensor, values: Tensor) -> Tensor:
    """A batched matrix product: (sets, a, b), (sets, b, folds, columns) -> (sets, a, folds, columns)"""
    product = matrices @ values.flatten(-2)
    return product.reshape(*product.shape[:2], *values.shape[2:])


def follow(problem: FoldProblem, tolerance: float, epochs: int) -> Path:
    """Integrate the gradient flow from zero, with one epoch of SAGA per round.

    An exponential Adams-Bashforth integrator: exact for a curvature that is constant along each axis, and corrected by
    the remaining change of the gradient in the last step. The curvature is measured at rounds that are powers of two;
    the factor `caution` increases if a step meets more curvature than expected, so that no fold can diverge.
    """
    weights, time = problem.zeros(), _epoch_time(problem)[:, None, :, None]
    caution = torch.full_like(
        time, 1.0 if weights.shape[-1] == 1 else 2.0
    )  # the classes together can double the curvature
    rounds = torch.zeros(time.shape[0], time.shape[2], dtype=torch.int64, device=time.device)
    done = torch.zeros_like(rounds, dtype=torch.bool)
    step, previous, lengths, measured = torch.zeros_like(weights), None, time, time
    squares = (problem.axes.rows @ problem.axes.vectors).square_()
    for epoch in range(epochs):
        probabilities = problem.probabilities(weights)
        if epoch & (epoch - 1) == 0:  # 0, 1, 2, 4, 8, ...
            measured = product(squares.mT, (probabilities * (1 - probabilities)).mul_(problem.share))
        gradient = problem.rotate(problem.gradient(probabilities, weights))
        change = torch.zeros_like(gradient) if previous is None else gradient - previous
        caution = caution * _curvature_ratio(step, change, lengths)
        curvature = (caution * measured).minimum(problem.axes.values * problem.ceiling) + problem.penalty
        lengths = -torch.expm1(-curvature * time) / curvature
        step = lengths * gradient + _CORRECTION * (1 - lengths / time) / curvature * (change + curvature * step)
        step.mul_(~done[:, None, :, None])
        previous = gradient
        update = problem.rotate_back(step)
        weights -= update
        rounds += ~done
        inner = slice(problem.axes.width)
        done |= largest(update[:, inner]) <= tolerance * largest(weights[:, inner])
        if bool(done.all()):
            break
    return weights, rounds, done


def _epoch_time(problem: FoldProblem) -> Tensor:
    """The time on the flow of one epoch of SAGA: its rows times its step. (sets, folds)"""
    squares = problem.axes.rows.square().sum(-1)  # the column of ones included, as scikit-learn does
    trained = (problem.share[..., 0] > 0).mT
    longest = torch.stack([torch.where(trained, of_set, 0.0).amax(-1) for of_set in squares])
    penalty, size = problem.penalty[:, 0], 1 / problem.share.amax((0, 2))
    steepest = 0.25 * longest + penalty
    return size / (2 * steepest + torch.minimum(2 * size * penalty, steepest))


def _curvature_ratio(step: Tensor, change: Tensor, lengths: Tensor) -> Tensor:
    """The actual curvature along a step divided by the expected one, at least 1. (sets, 1, folds, 1)"""
    expected = (step.square() / lengths).sum((1, 3), keepdim=True)
    actual = -(step * change).sum((1, 3), keepdim=True)
    return torch.where(expected > 0, actual / expected, 1.0).clamp_min(1.0)


def minimise(problem: FoldProblem, tolerance: float, rounds: int) -> Path:
    """Nesterov's accelerated gradients along the axes; a fold restarts when its momentum leads uphill."""
    weights = problem.zeros()
    lengths = 1 / (problem.axes.values * problem.ceiling + problem.penalty)
    lookahead, t = weights, torch.ones_like(weights[:, :1, :, :1])
    n_rounds = torch.zeros(weights.shape[0], weights.shape[2], dtype=torch.int64, device=weights.device)
    done = torch.zeros_like(n_rounds, dtype=torch.bool)
    for _ in range(rounds):
        gradient = problem.gradient(problem.probabilities(lookahead), lookahead)
        done |= largest(gradient) <= tolerance
        if bool(done.all()):
            break
        step = problem.rotate_back(problem.rotate(gradient) * lengths)
        updated = torch.where(done[:, None, :, None], lookahead, lookahead - step)
        uphill = (gradient * (updated - weights)).sum((1, 3), keepdim=True) > 0
        t = torch.where(uphill, 1.0, t)
        next_t = (1 + (1 + 4 * t.square()).sqrt()) / 2
        momentum = torch.where(done[:, None, :, None], 0.0, (t - 1) / next_t)
        lookahead, weights, t = updated + momentum * (updated - weights), updated, next_t
        n_rounds += ~done
    return lookahead, n_rounds, done


def largest(values: Tensor) -> Tensor:
    """The largest absolute value of each fold: (sets, d, folds, columns) -> (sets, folds)"""
    return values.abs().amax((1, 3))
