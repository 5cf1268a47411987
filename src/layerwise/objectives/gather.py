"""Gather the rows of all processes in one tensor, so that a loss sees the joint batch.

The convention: every process gathers, computes the same joint loss, and calls `backward`; DDP then averages the
gradients over the processes. Each process contributes only its rows' part of the joint gradient, and the average
divides it by the number of processes, so the backward pass multiplies this process's part by that number, without
communication. For any objective, the result is the gradient of a single process with the joint batch; what is computed
from gathered rows (a head, a regulariser) is the same in every process, and so is its average.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from layerwise.errors import InputError


def world_size() -> int:
    """The number of processes that train together; 1 if `torch.distributed` is not initialised."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The rank of this process; 0 if `torch.distributed` is not initialised."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def gather_rows(tensor: Tensor) -> Tensor:
    """All processes' rows in the order of their ranks, with gradient. (n, ...) -> (processes * n, ...)

    Every process must call it, with the same number of rows. A single process gets its tensor back.
    """
    if world_size() == 1:
        return tensor
    if not tensor.ndim:
        raise InputError("A single number has no rows to gather; give a tensor of at least one axis")
    _check_same_sizes(tensor)
    gathered: Tensor = _GatherRows.apply(tensor)  # type: ignore[no-untyped-call]
    return gathered


class _GatherRows(torch.autograd.Function):
    """Forward: all processes' rows. Backward: this process's gradient times the number of processes."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.rows = len(tensor)
        return torch.cat(_all_gather(tensor))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        return gradient.narrow(0, rank() * ctx.rows, ctx.rows) * world_size()


def _all_gather(tensor: Tensor) -> list[Tensor]:
    rows = tensor.detach().contiguous()
    parts = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(parts, rows)
    return parts


def _check_same_sizes(tensor: Tensor) -> None:
    """Refuse unequal batches in every process, before the gather would hang or mix them up."""
    sizes = torch.tensor([len(tensor), tensor.numel()], device=tensor.device)
    rows, elements = torch.stack(_all_gather(sizes)).T.tolist()
    if len(set(rows)) > 1:
        raise InputError(
            f"The processes have {', '.join(map(str, rows))} rows; gathering needs as many in each: drop the last, "
            "smaller batch"
        )
    if len(set(elements)) > 1:
        raise InputError(
            f"The processes have rows of {', '.join(str(count // rows[0]) for count in elements)} numbers; gather "
            "tensors of one shape"
        )
