"""Shuffled group whitening (WhitenedCSE, Zhuo et al. 2023): whitened vectors of a batch as further positives.

The dimensions are shuffled and cut into groups; each group is whitened over the batch (ZCA), and the dimensions are put
back: Z_g ↦ (Z_g - μ_g) Σ_g^(-1/2), Σ_g = (Z_g - μ_g)ᵀ(Z_g - μ_g) / n. Another shuffle gives another vector of the same
sentence, so that one sentence has as many positives as there are shuffles.
"""

from collections.abc import Sequence
from math import ceil, log, sqrt
from typing import Any

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import full_dtype, info_nce
from layerwise.objectives.shapes import check_above_zero, check_rows, check_same_shape

_FLOOR = 1e-12  # of eigenvalues: vectors that are all the same stay finite
_SQUARINGS = 7


def group_whitened(vectors: Tensor, order: Tensor, *, size: int, ridge: float = 1e-3) -> Tensor:
    """Vectors whitened in groups of dimensions. (n, d), (d,) -> (n, d)

    Args:
        vectors: Of a batch.
        order: A permutation of the dimensions: the first `size` are a group, then the next. A last, smaller group is
            whitened too.
        size: Dimensions of a group; with n rows or fewer than so, the covariance has no inverse but for `ridge`.
        ridge: This share of the mean variance of a group is added to its variances.
    """
    (whitened,) = _all_whitened([(vectors, order)], size=size, ridge=ridge)
    return whitened


def whitened_contrast(
    anchors: Tensor,
    positives: Tensor,
    orders: Sequence[Tensor],
    *,
    size: int,
    temperature: float = 0.05,
    ridge: float = 1e-3,
) -> Tensor:
    """The mean of InfoNCE from whitened anchors to each whitening of the positives. (n, d), (n, d), (d,) each -> scalar

    The first of `orders` is the anchors', each of the others gives every anchor a further positive.
    """
    check_rows(anchors=anchors, positives=positives)
    check_same_shape(anchors=anchors, positives=positives)
    if len(orders) < 2:
        raise InputError(f"{len(orders)} orders came; give one for the anchors and one or more for the positives")
    shuffled = [(anchors if place == 0 else positives, order) for place, order in enumerate(orders)]
    first, *others = _all_whitened(shuffled, size=size, ridge=ridge)
    return torch.stack([info_nce(first, other, temperature=temperature) for other in others]).mean()


def _all_whitened(shuffles: Sequence[tuple[Tensor, Tensor]], *, size: int, ridge: float) -> list[Tensor]:
    """The vectors of each shuffle whitened, all groups of all shuffles by one decomposition: a GPU waits for each."""
    check_above_zero("ridge", ridge)
    for vectors, order in shuffles:
        check_rows(vectors=vectors)
        if order.shape != vectors.shape[1:]:
            raise InputError(
                f"order: the shape is {tuple(order.shape)}; expected one place for each of {vectors.shape[1]}"
            )
        if not 1 <= size <= vectors.shape[1]:
            raise InputError(f"size {size} is not possible; give 1 to {vectors.shape[1]} dimensions a group")
    some, _ = shuffles[0]
    rows, width = some.shape
    whole = width - width % size
    with torch.autocast(some.device.type, enabled=False):
        shuffled = torch.stack([vectors.to(full_dtype(vectors)).index_select(1, order) for vectors, order in shuffles])
        shuffled = shuffled.transpose(0, 1)  # (n, shuffles, d)
        parts = [_whitened(shuffled[..., :whole].reshape(rows, -1, size), ridge).view(rows, -1, whole)]
        if whole < width:
            parts.append(_whitened(shuffled[..., whole:], ridge).view(rows, -1, width - whole))
        whitened = torch.cat(parts, dim=2)
        return [whitened[:, place].index_select(1, order.argsort()) for place, (_, order) in enumerate(shuffles)]


def _whitened(groups: Tensor, ridge: float) -> Tensor:
    """(n, groups, size) -> (n, groups · size)"""
    size = groups.shape[2]
    centred = (groups - groups.mean(0)).transpose(0, 1)
    covariance = centred.mT @ centred / groups.shape[0]
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(size, dtype=groups.dtype, device=groups.device)
    shifted = covariance + (ridge * variance + _FLOOR)[:, None, None] * identity
    root: Tensor = _InverseRoot.apply(shifted, _steps(sqrt(size * (1 + ridge) / ridge)))  # type: ignore[no-untyped-call]
    return (centred @ root).transpose(0, 1).flatten(1)


class _InverseRoot(torch.autograd.Function):
    """A^(-1/2) of symmetric positive matrices, (k, d, d), by matrix signs, which are products alone.

    An eigendecomposition has to be waited for, and a GPU stands still meanwhile. With R = A^(1/2) the sign of
    [[0, A], [I, 0]] is [[0, R], [R^(-1), 0]]; the gradient is -X with RX + XR = R^(-1) G R^(-1), and the sign of
    [[R, C], [0, -R]] is [[I, 2X], [0, -I]] where RX + XR = C. (Higham 2008, Functions of Matrices, chapters 5 and 6.)
    All of it in float64: the products of a GPU that may shorten float32 would spoil it.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, steps: int) -> Tensor:
        exact, size = matrices.double(), matrices.shape[-1]
        trace = exact.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]  # no eigenvalue is above it
        identity = torch.eye(size, dtype=exact.dtype, device=exact.device).expand_as(exact)
        nothing = torch.zeros_like(exact)
        sign = _sign(_blocks(nothing, exact / trace, identity, nothing), steps)
        inverse = sign[:, size:, :size] / trace.sqrt()
        ctx.save_for_backward(sign[:, :size, size:], inverse, trace)  # the root of what was divided by the trace
        ctx.steps = steps
        return inverse.to(matrices.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), (root, inverse, trace) = gradients, ctx.saved_tensors
        exact, size = gradient.double(), root.shape[-1]
        middle = inverse @ ((exact + exact.mT) / 2) @ inverse
        sign = _sign(_blocks(root, middle, torch.zeros_like(root), -root), ctx.steps)
        return (sign[:, :size, size:] / (-2 * trace.sqrt())).to(gradient.dtype), None


def _blocks(*four: Tensor) -> Tensor:
    """[[a, b], [c, d]] of matrices, (k, d, d) each -> (k, 2d, 2d)"""
    upper, lower = torch.cat(four[:2], dim=2), torch.cat(four[2:], dim=2)
    return torch.cat([upper, lower], dim=1)


def _sign(matrices: Tensor, steps: int) -> Tensor:
    """The sign of matrices whose eigenvalues are within -1 and 1 (Newton and Schulz)."""
    identity = 1.5 * torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    for _ in range(steps):
        matrices = matrices @ torch.baddbmm(identity, matrices, matrices, alpha=-0.5)
    return matrices


def _steps(spread: float) -> int:
    """How many until an eigenvalue of 1 / spread is 1: it grows by half until it is near, then its error is squared."""
    return ceil(log(spread, 1.5)) + _SQUARINGS
