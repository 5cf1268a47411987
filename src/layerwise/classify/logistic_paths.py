"""Two ways from zero to the weights of many regressions: SAGA's, which halts early, and the way to the optimum."""

import torch
from torch import Tensor

from layerwise.classify.logistic_problem import FoldProblem, product

_FORESIGHT = 0.6  # of the correction: 1 follows smooth paths best, but swings where curvature is a third above foreseen

Path = tuple[Tensor, Tensor, Tensor]  # weights; rounds and whether it converged, (sets, folds) both


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
