"""A pull back to the weights that training started from: SG-BERT's L_reg = ||BERT_F - BERT_T||²."""

from collections.abc import Iterable
from math import inf

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.cosine import full_dtype


def squared_distance(parameters: Iterable[Tensor], start: Iterable[Tensor]) -> Tensor:
    """The sum of squared differences over all parameters (SG-BERT's L_reg). Tensors, their like -> scalar

    The start gets no gradient.
    """
    sums = []
    for now, then in _paired(parameters, start):
        dtype = full_dtype(now, then)
        sums.append((now.to(dtype) - then.detach().to(dtype)).square().sum())
    if not sums:
        raise InputError("No parameters came; give a model's parameters and their starting values")
    return torch.stack([part.to(sums[0].device) for part in sums]).sum()


@torch.no_grad()
def add_pull_to_start(parameters: Iterable[Tensor], start: Iterable[Tensor], *, strength: float) -> None:
    """Add the gradient of `strength * squared_distance(parameters, start)` to each `.grad`, without a graph.

    Call it once before an optimiser's step: after the last `backward` of the step, after DDP has averaged and a
    gradient scaler has unscaled. Parameters that need no gradient are left alone.
    """
    if not 0 <= strength < inf:
        raise InputError(f"strength {strength} is not possible; give 0 or a number above it")
    trained = [(now, then) for now, then in _paired(parameters, start) if now.requires_grad]
    if not trained:
        return
    gradients = []
    for now, _ in trained:
        now.grad = torch.zeros_like(now) if now.grad is None else now.grad
        gradients.append(now.grad)
    # the differences first: adding p and subtracting p0 one after the other would leave rounding where both are equal
    differences = torch._foreach_sub([now for now, _ in trained], [then for _, then in trained])
    torch._foreach_add_(gradients, differences, alpha=2 * strength)


def _paired(parameters: Iterable[Tensor], start: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each parameter with its starting value."""
    now, then = list(parameters), list(start)
    if len(now) != len(then):
        raise InputError(f"{len(now)} parameters and {len(then)} starting values came; give one for each")
    for place, (one, other) in enumerate(zip(now, then, strict=True)):
        if one.shape != other.shape:
            raise InputError(
                f"Parameter {place} has the shape {tuple(one.shape)} and its starting value {tuple(other.shape)}; give "
                "both in the same order"
            )
    return list(zip(now, then, strict=True))
