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

The axes are those of all rows given, training or not; they guide the path, not where it leads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from layerwise.classify.logistic_paths import Path, follow, minimise
from layerwise.classify.logistic_problem import FoldProblem, absent_classes, fold_problem, principal_axes
from layerwise.errors import InputError


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


def sets_at_once(rows: int, width: int, folds: int, classes: int, device: torch.device) -> int:
    """How many feature matrices to give in one call: enough to keep a GPU busy, in bounded memory; 1 on a CPU."""
    if device.type != "cuda":
        return 1
    return max(1, _workspace(device) // (12 * rows * width + folds * _fold_bytes(rows, width, classes)))


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
