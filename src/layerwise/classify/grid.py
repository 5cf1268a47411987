"""Every fold with every C of a grid: all regressions of a cross-validation, solved together.

First the regression on all training rows is solved for each C, from the smallest to the largest. It is the guide of
the folds with that C: its weights are their starting point and its curvature their preconditioner. As a fold differs
from the whole by a tenth or a fifth of the rows, it converges in a handful of rounds.

The guide has seen the rows that a fold holds out. This leaks nothing: the objective is strictly convex, so it has one
optimum, and a fold stops where the gradient of its objective, on its rows, is zero within the tolerance, whatever the
starting point. Only the number of rounds depends on the guide.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from layerwise.classify.problems import Problems, Rows, probabilities
from layerwise.classify.quasi_newton import Minima, minimise
from layerwise.threads import one_thread_each

log = logging.getLogger(__name__)
_CURVATURE_ROUNDS = 15  # rounds of a guide after which its curvature is measured again
_WORKSPACE = 2**26  # elements of the working space
_COPIES = 30  # copies of the weights that the solver needs per problem
_MAX_BLOCKS = 32
_ROWS_PER_FEATURE = 32  # that measure the curvature, at most; with 8, there are up to five times as many rounds


@dataclass(frozen=True)
class Preconditioner:
    """Inverse curvatures of the objective, one for each C, which turn a gradient step into nearly a Newton step.

    (Cs, columns or 1, d, d). With more than two classes only the diagonal blocks are used, one per class, and with more
    than `_MAX_BLOCKS` classes their mean: L-BFGS approximates the rest.
    """

    inverses: Tensor

    def double(self) -> Self:
        """The same in float64."""
        return type(self)(self.inverses.double())

    def __call__(self, gradients: Tensor, c: Tensor) -> Tensor:
        """Gradients (problems, columns, d) and the index of each problem's C -> steps of the same shape"""
        steps = torch.empty_like(gradients)
        for number, blocks in enumerate(self.inverses):
            members = (c == number).nonzero()[:, 0]
            if len(members):
                steps[members] = _apply(gradients[members], blocks)
        return steps


@dataclass(frozen=True)
class Guide:
    """The regressions on all rows, one for each C."""

    rows: Rows
    cs: tuple[float, ...]
    weights: Tensor
    """(Cs, columns, d)"""
    preconditioner: Preconditioner
    tolerance: float
    rounds: int

    @classmethod
    def of(cls, rows: Rows, cs: Sequence[float], *, tolerance: float = 1e-5, rounds: int = 500) -> Self:
        """Solve the regressions, each starting from the previous one.

        Args:
            rows: The rows that train in any fold.
            cs: scikit-learn's C, in ascending order.
            tolerance: A regression stops when no entry of the gradient of mean log loss + ½‖w‖² / (C · rows) is above
                this, times the root mean square of the features.
            rounds: The maximum number of gradients.
        """
        weights = rows.features.new_zeros(1, rows.columns, rows.features.shape[1])
        hessian = curvature(rows, weights[0])
        solutions, inverses = [], []
        for c in cs:
            weights, hessian = _solve_all_rows(rows, c, weights, hessian, tolerance * rows.size, rounds)
            solutions.append(weights[0])
            inverses.append(inverted(hessian, 1 / (c * len(rows.labels))))
        return cls(rows, tuple(cs), torch.stack(solutions), Preconditioner(torch.stack(inverses)), tolerance, rounds)

    def fit(self, folds: Tensor, fold: Tensor, c: Tensor, *, start: Tensor | None = None) -> Minima:
        """Solve regressions, given folds (folds, n) bool and the index of the fold and C of each, (problems,) both."""
        chunk_size = max(1, _WORKSPACE // (_COPIES * self.weights[0].numel()))
        parts = [slice(first, first + chunk_size) for first in range(0, len(fold), chunk_size)]
        start = self.weights[c] if start is None else start
        minima = [self._fit(folds, fold[part], c[part], start[part]) for part in parts]
        return Minima(*(torch.cat(values) for values in zip(*(part.values() for part in minima), strict=True)))

    def problems(self, folds: Tensor, fold: Tensor, c: Tensor) -> Problems:
        """The problems that `fit` solves."""
        values = torch.tensor(self.cs, dtype=torch.float64, device=fold.device)
        return Problems.of(self.rows, folds, fold, values[c])

    def _fit(self, folds: Tensor, fold: Tensor, c: Tensor, start: Tensor) -> Minima:
        minima = _solve(
            self.problems(folds, fold, c), self.preconditioner, c, start, self.tolerance * self.rows.size, self.rounds
        )
        remaining = (~minima.converged).nonzero()[:, 0]
        if len(remaining) and start.dtype == torch.float32:  # rounding errors may keep a gradient above the tolerance
            precise = replace(self, rows=self.rows.double(), preconditioner=self.preconditioner.double())
            refined = precise._fit(folds, fold[remaining], c[remaining], minima.weights[remaining].double())
            minima.weights[remaining] = refined.weights.float()
            minima.rounds[remaining] += refined.rounds
            minima.converged[remaining] = refined.converged
        elif len(remaining):
            log.warning("%d of %d regressions did not converge in %d rounds", len(remaining), len(fold), self.rounds)
        return minima


def _solve_all_rows(
    rows: Rows, c: float, weights: Tensor, hessian: Tensor, tolerance: float, rounds: int
) -> tuple[Tensor, Tensor]:
    """Solve the regression on all rows from weights (1, columns, d) and their curvature; returns the same of it."""
    first = torch.zeros(1, dtype=torch.int64, device=weights.device)
    all_rows = torch.ones(1, len(rows.labels), dtype=torch.bool, device=weights.device)
    problem = Problems.of(rows, all_rows, first, torch.tensor([c], dtype=torch.float64, device=weights.device))
    for _ in range(0, rounds, _CURVATURE_ROUNDS):
        preconditioner = Preconditioner(inverted(hessian, 1 / (c * len(rows.labels)))[None])
        minima = _solve(problem, preconditioner, first, weights, tolerance, _CURVATURE_ROUNDS)
        weights, hessian = minima.weights, curvature(rows, minima.weights[0])
        if bool(minima.converged):
            break
    return weights, hessian


def _solve(
    problems: Problems, preconditioner: Preconditioner, c: Tensor, start: Tensor, tolerance: float, rounds: int
) -> Minima:
    return minimise(
        lambda weights, number: problems[number].gradient(weights),
        lambda gradients, number: problems[number].centred(preconditioner(gradients, c[number])),
        problems.centred(start),
        tolerance=tolerance,
        rounds=rounds,
    )


def _apply(gradients: Tensor, blocks: Tensor) -> Tensor:
    """Multiply by the blocks, without batched products, which are slower. (p, columns, d), (blocks, d, d)"""
    if len(blocks) == 1:
        return (gradients.flatten(0, 1) @ blocks[0]).view_as(gradients)
    return torch.stack([gradients[:, column] @ block for column, block in enumerate(blocks)], 1)


def curvature(rows: Rows, weights: Tensor) -> Tensor:
    """The Hessian blocks of the mean log loss of a sample of the rows, at weights (columns, d): (columns or 1, d, d)"""
    n, d = rows.features.shape
    sample = rows.features[torch.linspace(0, n - 1, min(n, _ROWS_PER_FEATURE * d), device=weights.device).long()]
    no_absent = torch.zeros(1, len(weights), 1, dtype=torch.bool, device=weights.device)
    predicted = probabilities(weights @ sample.mT, no_absent)[0]
    variances = predicted * (1 - predicted)
    if len(variances) > _MAX_BLOCKS:
        variances = variances.mean(0, keepdim=True)
    return torch.stack([(sample.mT * variance) @ sample for variance in variances]) / len(sample)


def inverted(blocks: Tensor, penalty: float) -> Tensor:
    """Invert blocks of curvature plus the penalty: (columns or 1, d, d) -> same shape"""
    precise = blocks.double()
    diagonal = torch.full_like(precise[0, 0], penalty)
    diagonal[-1] = 0  # the intercept is not penalised
    diagonal += 1e-7 * precise.diagonal(dim1=1, dim2=2).mean()  # so that a Cholesky factor exists despite rounding
    with one_thread_each():  # with two, OpenBLAS takes ten times as long
        return torch.cholesky_inverse(torch.linalg.cholesky(precise + torch.diag(diagonal))).to(blocks.dtype)
