"""L-BFGS for many small convex problems at once: a round is one gradient of all that are not done yet.

Each problem has a step length, chosen by the slope along its step alone (objectives are never computed): where the
slope at the end leads back more than four fifths as steeply as it led there, the step is cut to where a parabola has
its foot. Problems that are done leave the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

_MEMORY = 10  # steps whose curvature is remembered
_OVERSHOT = 0.8
_SPARED = 0.8  # the batch is made smaller when no more than this share of it is left

Preconditioner = Callable[[Tensor, Tensor], Tensor]
"""Gradients (problems, columns, d) and the problems' numbers (problems,) -> about a Newton step's size along them."""
Gradient = Callable[[Tensor, Tensor], Tensor]
"""Weights (problems, columns, d) and the problems' numbers -> gradients."""


@dataclass(frozen=True)
class Minima:
    """Where the problems ended."""

    weights: Tensor
    """(problems, columns, d)"""
    rounds: Tensor
    """(problems,): gradients taken."""
    converged: Tensor
    """(problems,): whether no entry of the gradient is above the tolerance."""

    def values(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three."""
        return self.weights, self.rounds, self.converged


@dataclass(frozen=True)
class _State:
    """Problems under way."""

    number: Tensor  # (p,)
    weights: Tensor  # (p, columns, d)
    slope: Tensor
    direction: Tensor  # downhill
    length: Tensor  # (p, 1, 1), of the step to try
    steps: tuple[Tensor, ...] = ()  # the last steps, and how the slope changed along them
    bends: tuple[Tensor, ...] = ()
    curvatures: tuple[Tensor, ...] = ()  # (p, 1, 1): 1 / (step · bend), 0 for no step

    def __getitem__(self, picked: Tensor) -> Self:
        def pick(values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(value[picked] for value in values)

        number, weights, slope, direction, length = (
            value[picked] for value in (self.number, self.weights, self.slope, self.direction, self.length)
        )
        memory = (pick(values) for values in (self.steps, self.bends, self.curvatures))
        return type(self)(number, weights, slope, direction, length, *memory)


def minimise(
    gradient: Gradient, preconditioner: Preconditioner, start: Tensor, *, tolerance: float, rounds: int
) -> Minima:
    """Start (problems, columns, d) -> the minima. The preconditioner guides the paths; the gradient alone ends them."""
    number = torch.arange(len(start), device=start.device)
    minima = Minima(start.clone(), torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool))
    slope = gradient(start, number)
    state = _State(number, start, slope, -preconditioner(slope, number), torch.ones_like(start[:, :1, :1]))
    for taken in range(1, rounds + 1):
        going = state.slope.abs().amax((1, 2)) > tolerance
        minima.weights[state.number] = state.weights
        minima.rounds[state.number[going]] = taken
        minima.converged[state.number] = ~going
        if not bool(going.any()):
            break
        if int(going.sum()) <= _SPARED * len(going):
            state = state[going]
        state = _advance(state, gradient, preconditioner)
    return minima


def _advance(state: _State, gradient: Gradient, preconditioner: Preconditioner) -> _State:
    """Try a step; take it, or shorten it."""
    step = state.length * state.direction
    slope = gradient(state.weights + step, state.number)
    before, after = _dot(state.slope, state.direction), _dot(slope, state.direction)
    taken = after <= _OVERSHOT * -before
    shorter = torch.where(taken, 1.0, state.length * before / (before - after))
    bend = slope - state.slope
    product = _dot(step, bend)
    curvature = torch.where(taken & (product > 0), 1 / product, 0.0)
    state = replace(
        state,
        weights=torch.where(taken, state.weights + step, state.weights),
        slope=torch.where(taken, slope, state.slope),
        length=shorter,
        steps=(*state.steps, step)[-_MEMORY:],
        bends=(*state.bends, bend)[-_MEMORY:],
        curvatures=(*state.curvatures, curvature)[-_MEMORY:],
    )
    return replace(state, direction=torch.where(taken, -_newton_like(state, preconditioner), state.direction))


def _newton_like(state: _State, preconditioner: Preconditioner) -> Tensor:
    """The two loops of L-BFGS, the preconditioner in between."""
    turned, memory = state.slope.clone(), list(zip(state.steps, state.bends, state.curvatures, strict=True))
    shares = []
    for step, bend, curvature in reversed(memory):
        shares.append(curvature * _dot(step, turned))
        turned -= shares[-1] * bend
    turned = preconditioner(turned, state.number)
    for (step, bend, curvature), share in zip(memory, reversed(shares), strict=True):
        turned += step * (share - curvature * _dot(bend, turned))
    return turned


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """(p, columns, d), the same -> (p, 1, 1)"""
    return (one * other).sum((1, 2), keepdim=True)
