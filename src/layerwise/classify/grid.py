"""Every fold with every C of a grid: all regressions that a cross-validation needs, solved together.

First the regression on all training rows is solved for each C, from the smallest to the largest. It is the guide of
the folds with that C: they start from its weights, and step by its curvature; as a fold differs from the whole by a
tenth or a fifth of the rows, a handful of rounds brings it to its optimum.

The guide has seen the rows that a fold holds out. That leaks nothing: an objective is strictly convex, so it has one
optimum, and a fold halts where the gradient of its objective, on its rows, is zero to the tolerance, wherever
it came from. Only the number of rounds depends on the guide.
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
_MEASURE_AGAIN = 15  # rounds of a guide after which its curvature has become another
_FLOATS = 2**26  # of working space
_COPIES = 30  # copies of the weights that a path works with
_MOST_BLOCKS = 32
_SAMPLE = 32  # rows for each feature, at most, that measure the curvature: with 8, paths are up to five times as long


@dataclass(frozen=True)
class Preconditioner:
    """Inverse curvatures of the objective, one for each C, which make a gradient step nearly Newton's.

    (Cs, columns or 1, d, d). With more than two classes only the blocks of each class with itself are used, and beyond
    `_MOST_BLOCKS` classes one block, their mean: L-BFGS learns the rest on its way.
    """

    inverses: Tensor

    def double(self) -> Self:
        """The same in float64."""
        return type(self)(self.inverses.double())

    def __call__(self, slopes: Tensor, c: Tensor) -> Tensor:
        """Gradients (problems, columns, d) and the number of each one's C -> steps of the same shape"""
        steps = torch.empty_like(slopes)
        for number, blocks in enumerate(self.inverses):
            mine = (c == number).nonzero()[:, 0]
            if len(mine):
                steps[mine] = _apply(slopes[mine], blocks)
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
        """Solve them, each from the last.

        Args:
            rows: The rows that train in any fold.
            cs: scikit-learn's C, from small to large.
            tolerance: A regression halts when no entry of the gradient of mean log loss + ½‖w‖² / (C · rows) is above
                this, times the root mean square of the features.
            rounds: The most gradients.
        """
        weights = rows.features.new_zeros(1, rows.columns, rows.features.shape[1])
        bent = curvature(rows, weights[0])
        solved, inverses = [], []
        for c in cs:
            weights, bent = _whole(rows, c, weights, bent, tolerance * rows.size, rounds)
            solved.append(weights[0])
            inverses.append(inverted(bent, 1 / (c * len(rows.labels))))
        return cls(rows, tuple(cs), torch.stack(solved), Preconditioner(torch.stack(inverses)), tolerance, rounds)

    def fit(self, folds: Tensor, fold: Tensor, c: Tensor, *, start: Tensor | None = None) -> Minima:
        """Any regressions: folds (folds, n) bool; of each its fold and its C's number, (problems,) both."""
        at_once = max(1, _FLOATS // (_COPIES * self.weights[0].numel()))
        parts = [slice(first, first + at_once) for first in range(0, len(fold), at_once)]
        start = self.weights[c] if start is None else start
        minima = [self._fit(folds, fold[part], c[part], start[part]) for part in parts]
        return Minima(*(torch.cat(values) for values in zip(*(part.values() for part in minima), strict=True)))

    def problems(self, folds: Tensor, fold: Tensor, c: Tensor) -> Problems:
        """Those that `fit` solves."""
        values = torch.tensor(self.cs, dtype=torch.float64, device=fold.device)
        return Problems.of(self.rows, folds, fold, values[c])

    def _fit(self, folds: Tensor, fold: Tensor, c: Tensor, start: Tensor) -> Minima:
        minima = _solve(
            self.problems(folds, fold, c), self.preconditioner, c, start, self.tolerance * self.rows.size, self.rounds
        )
        left = (~minima.converged).nonzero()[:, 0]
        if len(left) and start.dtype == torch.float32:  # rounding may hold a gradient above the tolerance
            precise = replace(self, rows=self.rows.double(), preconditioner=self.preconditioner.double())
            again = precise._fit(folds, fold[left], c[left], minima.weights[left].double())
            minima.weights[left] = again.weights.float()
            minima.rounds[left] += again.rounds
            minima.converged[left] = again.converged
        elif len(left):
            log.warning("%d of %d regressions did not converge in %d rounds", len(left), len(fold), self.rounds)
        return minima


def _whole(rows: Rows, c: float, weights: Tensor, bent: Tensor, tolerance: float, rounds: int) -> tuple[Tensor, Tensor]:
    """From weights (1, columns, d) and their curvature to those of the regression on all rows."""
    first = torch.zeros(1, dtype=torch.int64, device=weights.device)
    everything = torch.ones(1, len(rows.labels), dtype=torch.bool, device=weights.device)
    problem = Problems.of(rows, everything, first, torch.tensor([c], dtype=torch.float64, device=weights.device))
    for _ in range(0, rounds, _MEASURE_AGAIN):
        preconditioner = Preconditioner(inverted(bent, 1 / (c * len(rows.labels)))[None])
        minima = _solve(problem, preconditioner, first, weights, tolerance, _MEASURE_AGAIN)
        weights, bent = minima.weights, curvature(rows, minima.weights[0])
        if bool(minima.converged):
            break
    return weights, bent


def _solve(
    problems: Problems, preconditioner: Preconditioner, c: Tensor, start: Tensor, tolerance: float, rounds: int
) -> Minima:
    return minimise(
        lambda weights, number: problems[number].gradient(weights),
        lambda slopes, number: problems[number].centred(preconditioner(slopes, c[number])),
        problems.centred(start),
        tolerance=tolerance,
        rounds=rounds,
    )


def _apply(slopes: Tensor, blocks: Tensor) -> Tensor:
    """Plain products of two matrices, which are faster than batched ones. (p, columns, d), (blocks, d, d)"""
    if len(blocks) == 1:
        return (slopes.flatten(0, 1) @ blocks[0]).view_as(slopes)
    return torch.stack([slopes[:, column] @ block for column, block in enumerate(blocks)], 1)


def curvature(rows: Rows, weights: Tensor) -> Tensor:
    """Of the mean log loss of a sample of the rows, at these weights (columns, d): (columns or 1, d, d)"""
    n, d = rows.features.shape
    sample = rows.features[torch.linspace(0, n - 1, min(n, _SAMPLE * d), device=weights.device).long()]
    nowhere = torch.zeros(1, len(weights), 1, dtype=torch.bool, device=weights.device)
    chances = probabilities(weights @ sample.mT, nowhere)[0]
    spread = chances * (1 - chances)
    if len(spread) > _MOST_BLOCKS:
        spread = spread.mean(0, keepdim=True)
    return torch.stack([(sample.mT * share) @ sample for share in spread]) / len(sample)


def inverted(blocks: Tensor, penalty: float) -> Tensor:
    """The inverse of blocks of curvature with the penalty: (columns or 1, d, d) -> the same"""
    precise = blocks.double()
    added = torch.full_like(precise[0, 0], penalty)
    added[-1] = 0  # the intercept is free
    added += 1e-7 * precise.diagonal(dim1=1, dim2=2).mean()  # of rounding: the factors stay real
    with one_thread_each():  # OpenBLAS takes ten times as long with two
        return torch.cholesky_inverse(torch.linalg.cholesky(precise + torch.diag(added))).to(blocks.dtype)
