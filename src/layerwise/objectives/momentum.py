"""A momentum encoder and its queue of further negatives (ESimCSE, Wu et al. 2022; MoCo, He et al. 2020).

The loss with the queue is `info_nce` with the queue's vectors among the negatives and its empty slots ignored:
l_i = -log exp(cos(h_i, h_i⁺)/τ) / (Σ_j exp(cos(h_i, h_j⁺)/τ) + Σ_m exp(cos(h_i, g_m)/τ)), g_m the vectors in the queue.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.shapes import check_rows


@torch.no_grad()
def momentum_update(averages: Iterable[Tensor], parameters: Iterable[Tensor], *, momentum: float) -> None:
    """θ_m ← momentum · θ_m + (1 - momentum) · θ, in place, for tensors of the same shapes."""
    if not 0 <= momentum < 1:
        raise InputError(f"momentum {momentum} is not possible; give 0 or a number above it and below 1")
    slow, fast = list(averages), [parameter.detach() for parameter in parameters]
    if [tensor.shape for tensor in slow] != [tensor.shape for tensor in fast]:
        raise InputError("the averages are not of these parameters; give both in the same order")
    if slow:
        torch._foreach_lerp_(slow, fast, 1 - momentum)


@torch.no_grad()
def enqueue(queue: Tensor, count: Tensor, vectors: Tensor) -> None:
    """Replace the oldest vectors of the queue, in place. (size, d), (), (n, d)

    `count` is the number of vectors enqueued so far. Of more vectors than slots, the last ones are kept. There is no
    GPU synchronisation.
    """
    check_rows(queue=queue, vectors=vectors)
    size, rows = len(queue), len(vectors)
    kept_rows = min(rows, size)
    slots = (count + torch.arange(rows - kept_rows, rows, device=queue.device)) % size
    queue[slots] = vectors[-kept_rows:].detach().to(queue.dtype)
    count += rows


def empty_places(queue: Tensor, count: Tensor) -> Tensor:
    """A mask of the empty slots of a queue. (size, d), () -> (size,) bool"""
    return torch.arange(len(queue), device=queue.device) >= count
