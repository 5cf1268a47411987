"""L-BFGS for many small convex problems at once: a round is one gradient of all problems that have not converged.

Each problem has a step length, chosen by the directional derivative only (objectives are never computed): if the
derivative at the end of a step points back more than four fifths as steeply, the step is shortened to the minimum of
the parabola. Converged problems leave the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

_MEMORY = 10  # steps in the history
_OVERSHOT = 0.8
_COMPACT = 0.8  # the batch is compacted when at most this share of it is active

Preconditioner = Callable[[Tensor, Tensor], Tensor]
"""Gradients (problems, columns, d) and the problems' indices (problems,) -> preconditioned gradients."""
Gradient = Callable[[Tensor, Tensor], Tensor]
"""Weights (problems, columns, d) and the problems' indices -> gradients."""


@dataclass(frozen=True)
class Minima:
    """The solutions of the problems."""

    weights: Tensor
    """(problems, columns, d)"""
    rounds: Tensor
    """(problems,): the number of gradients."""
    converged: Tensor
    """(problems,): whether no entry of the gradient is above the tolerance."""

    def values(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three fields."""
        return self.weights, self.rounds, self.converged


@dataclass(frozen=True)
class _State:
    """The state of the active problems."""

    number: Tensor  # (p,)
    weights: Tensor  # (p, columns, d)
    gradient: Tensor
    direction: Tensor  # of descent
    length: Tensor  # (p, 1, 1), of the next step
    steps: tuple[Tensor, ...] = ()  # the last steps, and the changes of the gradient along them
    changes: tuple[Tensor, ...] = ()
    curvatures: tuple[Tensor, ...] = ()  # (p, 1, 1): 1 / (step · change), 0 for a rejected step

    def __getitem__(self, picked: Tensor) -> Self:
        def pick(values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(value[picked] for value in values)

        number, weights, gradient, direction, length = (
            value[picked] for value in (self.number, self.weights, self.gradient, self.direction, self.length)
        )
        history = (pick(values) for values in (self.steps, self.changes, self.curvatures))
        return type(self)(number, weights, gradient, direction, length, *history)


def minimise(
    gradient: Gradient, preconditioner: Preconditioner, start: Tensor, *, tolerance: float, rounds: int
) -> Minima:
    """Minimise from a start (problems, columns, d); only the gradient, not the preconditioner, decides convergence."""
    number = torch.arange(len(start), device=start.device)
    minima = Minima(start.clone(), torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool))
    initial = gradient(start, number)
    state = _State(number, start, initial, -preconditioner(initial, number), torch.ones_like(start[:, :1, :1]))
    for n_gradients in range(1, rounds + 1):
        active = state.gradient.abs().amax((1, 2)) > tolerance
        minima.weights[state.number] = state.weights
        minima.rounds[state.number[active]] = n_gradients
        minima.converged[state.number] = ~active
        if not bool(active.any()):
            break
        if int(active.sum()) <= _COMPACT * len(active):
            state = state[active]
        state = _advance(state, gradient, preconditioner)
    return minima


def _advance(state: _State, gradient: Gradient, preconditioner: Preconditioner) -> _State:
    """Try a step, and accept or shorten it."""
    step = state.length * state.direction
    new_gradient = gradient(state.weights + step, state.number)
    before, after = _dot(state.gradient, state.direction), _dot(new_gradient, state.direction)
    accepted = after <= _OVERSHOT * -before
    length = torch.where(accepted, 1.0, state.length * before / (before - after))
    change = new_gradient - state.gradient
    product = _dot(step, change)
    curvature = torch.where(accepted & (product > 0), 1 / product, 0.0)
    state = replace(
        state,
        weights=torch.where(accepted, state.weights + step, state.weights),
        gradient=torch.where(accepted, new_gradient, state.gradient),
        length=length,
        steps=(*state.steps, step)[-_MEMORY:],
        changes=(*state.changes, change)[-_MEMORY:],
        curvatures=(*state.curvatures, curvature)[-_MEMORY:],
    )
    return replace(state, direction=torch.where(accepted, -_two_loop(state, preconditioner), state.direction))


def _two_loop(state: _State, preconditioner: Preconditioner) -> Tensor:
    """The two-loop recursion of L-BFGS, with the preconditioner between the loops."""
    direction, history = state.gradient.clone(), list(zip(state.steps, state.changes, state.curvatures, strict=True))
    alphas = []
    for step, change, curvature in reversed(history):
        alphas.append(curvature * _dot(step, direction))
        direction -= alphas[-1] * change
    direction = preconditioner(direction, state.number)
    for (step, change, curvature), alpha in zip(history, reversed(alphas), strict=True):
        direction += step * (alpha - curvature * _dot(change, direction))
    return direction


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """The inner product of each problem: (p, columns, d) twice -> (p, 1, 1)"""
    return (left * right).sum((1, 2), keepdim=True)
