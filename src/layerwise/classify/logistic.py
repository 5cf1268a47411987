"""Many logistic regressions at once: they share their rows and differ in which of them they are trained on.

The objective is scikit-learn's, C · Σ log loss over the training rows + ½‖w‖², the intercept free; two classes are
binomial (one column of weights), more are multinomial. A round is two matrix products for all folds together, then a
step along the principal axes of the rows, where one number for an axis, a fold and a class says how far.

There are two answers, and on sentence vectors they differ by up to three points of accuracy:

- `fit_optimum` minimises the objective (accelerated gradients under a bound of the curvature that always holds).
- `fit_like_saga` stops where scikit-learn's SAGA does, far from the optimum: at tolerance 0.01 SAGA halts when an
  epoch moves no weight by more than 1 % of the largest, which regularises more than C does. With SAGA's step, an
  epoch is a fixed time on the gradient flow from zero, and SAGA's noise is small: so we follow the flow, an epoch a
  round, by an exponential integrator, and halt by the same rule. It halts within a few epochs of SAGA; its weights
  differ from SAGA's little more than SAGA's with two random seeds differ.

The axes are those of all rows, training or not; they guide the path, not where it leads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.threads import one_thread_each

_ALIGNED = 8  # columns are padded to a multiple of this, which matrix products on a GPU like
_FORESIGHT = 0.6  # of the correction: 1 follows smooth paths best, but swings where curvature is a third above foreseen
Path = tuple[Tensor, Tensor, Tensor]  # weights; rounds and whether it converged, (sets, folds) both


@dataclass(frozen=True)
class LogisticFits:
    """One regression for each fold, with a leading axis of sets where the features had one."""

    weights: Tensor
    """(..., folds, columns, width), columns being 1 for two classes, else one for each class."""
    intercepts: Tensor
    """(..., folds, columns); minus infinity for a class that the fold's training rows lack."""
    rounds: Tensor
    """(..., folds): epochs, or steps."""
    converged: Tensor
    """(..., folds): whether the tolerance was met before the rounds were spent."""

    def __getitem__(self, index: int) -> Self:
        """The fits of one set, where there are several."""
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
    """What `LogisticRegression(solver="saga", C=c, tol=tolerance, max_iter=epochs)` gives, but for its noise.

    Args:
        features: (n, width), or (sets, n, width) to solve every fold for each of several matrices.
        labels: (n,) whole numbers from 0.
        training: (folds, n) bool: the rows that each fold is trained on.
        c: scikit-learn's C: the larger, the weaker the penalty.
        tolerance: A fold halts when an epoch changes no weight by more than this share of its largest weight.
        epochs: The most epochs.
    """
    return _fit(features, labels, training, c, lambda problem: follow(problem, tolerance, epochs))


def fit_optimum(
    features: Tensor, labels: Tensor, training: Tensor, *, c: float = 10.0, tolerance: float = 1e-5, rounds: int = 5000
) -> LogisticFits:
    """The minimum of the objective, as `LogisticRegression(C=c, tol=tolerance)` gives it. Shapes as `fit_like_saga`.

    A fold halts when no entry of the gradient of its objective, divided by C times its rows, exceeds the tolerance.
    """
    return _fit(features, labels, training, c, lambda problem: minimise(problem, tolerance, rounds))


def sets_at_once(rows: int, width: int, folds: int, classes: int, device: torch.device) -> int:
    """How many feature matrices to give in one call: enough to keep a GPU busy, in bounded memory; 1 on a CPU."""
    if device.type != "cuda":
        return 1
    return max(1, _workspace(device) // (12 * rows * width + folds * _fold_bytes(rows, width, classes)))


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


def _fit(
    features: Tensor, labels: Tensor, training: Tensor, c: float, solve: Callable[[FoldProblem], Path]
) -> LogisticFits:
    """As many folds at a time as the workspace holds."""
    _check(features, labels, training, c)
    axes = principal_axes(features if features.ndim == 3 else features[None])
    classes = int(labels.max()) + 1
    sets, rows, width = features.shape[:-2].numel(), *features.shape[-2:]
    at_once = max(1, _workspace(features.device) // (sets * _fold_bytes(rows, width, classes)))
    problems = (
        fold_problem(axes, labels, training[start : start + at_once], classes, c)
        for start in range(0, len(training), at_once)
    )
    paths = [solve(problem) for problem in problems]
    weights = torch.cat([path[0] for path in paths], 2).permute(0, 2, 3, 1)  # (sets, folds, columns, d)
    intercepts = weights[..., axes.width].masked_fill(absent_classes(labels, training, classes), -math.inf)
    rounds, converged = (torch.cat([path[i] for path in paths], 1) for i in (1, 2))
    whole = (weights[..., : axes.width], intercepts, rounds, converged)
    return LogisticFits(*(whole if features.ndim == 3 else (part[0] for part in whole)))


def _workspace(device: torch.device) -> int:
    """Bytes to work in. More would only make short paths wait for long ones."""
    return min(2**31, int(torch.cuda.mem_get_info(device)[0]) // 4) if device.type == "cuda" else 2**28


def _fold_bytes(rows: int, width: int, classes: int) -> int:
    """What a fold needs, in float32: predictions and weights, with the copies that a round makes."""
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


def follow(problem: FoldProblem, tolerance: float, epochs: int) -> Path:
    """The gradient flow from zero, an epoch of SAGA a round.

    An exponential integrator of Adams and Bashforth's kind: exact for a curvature that is constant along each axis,
    and corrected by how the slope bent in the last step beyond that. The curvature is measured now and then; `caution`
    multiplies it, and rises where a step meets more than foreseen, so that no fold can swing out of control.
    """
    weights, time = problem.zeros(), _epoch_time(problem)[:, None, :, None]
    caution = torch.full_like(time, 1.0 if weights.shape[-1] == 1 else 2.0)  # classes together can double it
    taken = torch.zeros(time.shape[0], time.shape[2], dtype=torch.int64, device=time.device)
    done = torch.zeros_like(taken, dtype=torch.bool)
    step, before, lengths, measured = torch.zeros_like(weights), None, time, time
    squares = (problem.axes.rows @ problem.axes.vectors).square_()
    for epoch in range(epochs):
        chances = problem.probabilities(weights)
        if epoch & (epoch - 1) == 0:  # 0, 1, 2, 4, 8, ...
            measured = product(squares.mT, (chances * (1 - chances)).mul_(problem.share))
        slope = problem.turned(problem.gradient(chances, weights))
        bend = torch.zeros_like(slope) if before is None else slope - before
        caution = caution * _surprise(step, bend, lengths)
        curvature = (caution * measured).minimum(problem.axes.values * problem.ceiling) + problem.penalty
        lengths = -torch.expm1(-curvature * time) / curvature
        step = lengths * slope + _FORESIGHT * (1 - lengths / time) / curvature * (bend + curvature * step)
        step.mul_(~done[:, None, :, None])
        before = slope
        moved = problem.back(step)
        weights -= moved
        taken += ~done
        inner = slice(problem.axes.width)
        done |= largest(moved[:, inner]) <= tolerance * largest(weights[:, inner])
        if bool(done.all()):
            break
    return weights, taken, done


def _epoch_time(problem: FoldProblem) -> Tensor:
    """How far along the flow an epoch of SAGA goes: its rows times its step. (sets, folds)"""
    squares = problem.axes.rows.square().sum(-1)  # the column of ones included, as scikit-learn does
    trained = (problem.share[..., 0] > 0).mT
    longest = torch.stack([torch.where(trained, of_set, 0.0).amax(-1) for of_set in squares])
    penalty, size = problem.penalty[:, 0], 1 / problem.share.amax((0, 2))
    steepest = 0.25 * longest + penalty
    return size / (2 * steepest + torch.minimum(2 * size * penalty, steepest))


def _surprise(step: Tensor, bend: Tensor, lengths: Tensor) -> Tensor:
    """The curvature met along a step divided by the curvature foreseen, 1 where it is less. (sets, 1, folds, 1)"""
    foreseen = (step.square() / lengths).sum((1, 3), keepdim=True)
    met = -(step * bend).sum((1, 3), keepdim=True)
    return torch.where(foreseen > 0, met / foreseen, 1.0).clamp_min(1.0)


def minimise(problem: FoldProblem, tolerance: float, rounds: int) -> Path:
    """Nesterov's accelerated gradients along the axes, each fold starting anew when its momentum leads uphill."""
    weights = problem.zeros()
    lengths = 1 / (problem.axes.values * problem.ceiling + problem.penalty)
    ahead, pace = weights, torch.ones_like(weights[:, :1, :, :1])
    taken = torch.zeros(weights.shape[0], weights.shape[2], dtype=torch.int64, device=weights.device)
    done = torch.zeros_like(taken, dtype=torch.bool)
    for _ in range(rounds):
        slope = problem.gradient(problem.probabilities(ahead), ahead)
        done |= largest(slope) <= tolerance
        if bool(done.all()):
            break
        moved = torch.where(done[:, None, :, None], ahead, ahead - problem.back(problem.turned(slope) * lengths))
        uphill = (slope * (moved - weights)).sum((1, 3), keepdim=True) > 0
        pace = torch.where(uphill, 1.0, pace)
        faster = (1 + (1 + 4 * pace.square()).sqrt()) / 2
        momentum = torch.where(done[:, None, :, None], 0.0, (pace - 1) / faster)
        ahead, weights, pace = moved + momentum * (moved - weights), moved, faster
        taken += ~done
    return ahead, taken, done


def largest(values: Tensor) -> Tensor:
    """The largest entry of each fold, sign aside. (sets, d, folds, columns) -> (sets, folds)"""
    return values.abs().amax((1, 3))
