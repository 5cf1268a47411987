"""The weights of the tasks' losses, fixed or learned.

A task of weight 0 is left out of the sum, not multiplied by 0: its loss need not be computed (pass None), has no
gradient, and may be infinite or NaN.
"""

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor, nn

from layerwise.errors import InputError
from layerwise.registry import check_known
from layerwise.train.multitask.settings import WEIGHTS


def task_weights(kind: str, sizes: Sequence[int], declared: Sequence[float]) -> tuple[float, ...]:
    """Return the weight of each task.

    Args:
        kind: "equal": 1 each; "inverse-size": proportional to 1/size; both sum to the number of tasks. "given": the
            weights of the objectives, whatever their sum. "learned": 1 each, which is where `LearnedWeights` start.
        sizes: Each task's training rows.
        declared: The weight of each task's objective.
    """
    check_known(kind, WEIGHTS, "weights")
    if len(sizes) != len(declared) or not sizes:
        raise InputError(f"{len(sizes)} sizes and {len(declared)} weights came; give one of each for every task")
    if min(sizes) < 1:
        raise InputError(f"task {list(sizes).index(min(sizes))} has {min(sizes)} rows; every task needs 1 or more")
    if kind == "given":
        if not all(isfinite(weight) and weight >= 0 for weight in declared) or not any(declared):
            raise InputError(f"weights {list(declared)}: give 0 or more, and one above 0")
        return tuple(map(float, declared))
    if kind != "inverse-size":
        return (1.0,) * len(sizes)
    total = sum(1 / size for size in sizes)
    return tuple(len(sizes) / size / total for size in sizes)


def weighted_loss(losses: Sequence[Tensor | None], weights: Sequence[float]) -> Tensor:
    """The weighted sum; None is the loss of a task that is not in this step, or whose weight is 0. -> scalar"""
    if len(losses) != len(weights):
        raise InputError(f"{len(losses)} losses for {len(weights)} weights; give one for every task, None for none")
    return _sum([weight * loss for loss, weight in zip(losses, weights, strict=True) if loss is not None and weight])


class LearnedWeights(nn.Module):
    """Weights by each task's uncertainty (Kendall et al. 2018): sum over t of exp(-s_t) · L_t + s_t, s_t trained.

    A regression's summand is halved, as there: ½ (exp(-s_t) · L_t + s_t). Each s_t is a log variance, 0 at first; the
    best one is log L_t, so that every task comes to weigh 1/L_t (a regression ½/L_t) if the rate is high enough: at an
    encoder's they hardly move. Without + s_t all weights would fall to 0. Keep weight decay off them.

    Args:
        regression: For each task, whether its loss is a squared error.
    """

    def __init__(self, regression: Sequence[bool]) -> None:
        super().__init__()
        self.log_variances = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in regression])
        self.halves = tuple(0.5 if is_regression else 1.0 for is_regression in regression)

    @property
    def weights(self) -> tuple[float, ...]:
        """The current weight of each task's loss."""
        logs = torch.stack([log_variance.detach() for log_variance in self.log_variances])
        return tuple((torch.tensor(self.halves) * torch.exp(-logs.cpu())).tolist())

    def forward(self, losses: Sequence[Tensor | None]) -> Tensor:
        """None: a task that is not in this step, or whose rows are all padding; its s_t is left unchanged. -> scalar"""
        if len(losses) != len(self.log_variances):
            raise InputError(f"{len(losses)} losses for {len(self.log_variances)} tasks; give None for none")
        terms = zip(self.halves, self.log_variances, losses, strict=True)
        return _sum([half * (torch.exp(-s) * loss + s) for half, s, loss in terms if loss is not None])


def _sum(parts: Sequence[Tensor]) -> Tensor:
    if not parts:
        raise InputError("no task of this step has a loss to train on; leave tasks of weight 0 out of the schedule")
    return torch.stack(list(parts)).sum()
