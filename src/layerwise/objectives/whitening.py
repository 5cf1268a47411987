"""Shuffled group whitening (WhitenedCSE, Zhuo et al. 2023): whitened vectors of a batch as additional positives.

The dimensions are shuffled and split into groups; each group is whitened over the batch (ZCA), and the dimensions are
reordered: Z_g ↦ (Z_g - μ_g) Σ_g^(-1/2), Σ_g = (Z_g - μ_g)ᵀ(Z_g - μ_g) / n. Each shuffle gives another vector of a
sentence, so that a sentence has as many positives as there are shuffles.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import diagonal_cross_entropy, full_dtype, unit
from layerwise.objectives.shapes import check_above_zero, check_rows, check_same_shape

_FLOOR = 1e-12  # of eigenvalues, so that constant vectors stay finite
_TOLERANCE = 1e-15  # of the sign iteration


def group_whitened(vectors: Tensor, order: Tensor, *, size: int, ridge: float = 1e-3) -> Tensor:
    """Whiten vectors in groups of dimensions. (n, d), (d,) -> (n, d)

    Args:
        vectors: The vectors of a batch.
        order: A permutation of the dimensions, split into groups of `size`. The last group may be smaller.
        size: The number of dimensions of a group; unless n is larger, the covariance is only invertible with `ridge`.
        ridge: This share of the mean variance of a group is added to its variances.
    """
    check_rows(vectors=vectors)
    return _shuffle_and_whiten(vectors[None], [order], size=size, ridge=ridge)[0]


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

    The first of `orders` is for the anchors, each of the others for another set of positives.
    """
    check_rows(anchors=anchors, positives=positives)
    check_same_shape(anchors=anchors, positives=positives)
    if len(orders) < 2:
        raise InputError(f"{len(orders)} orders came; give one for the anchors and one or more for the positives")
    vectors = torch.stack([anchors, *[positives] * (len(orders) - 1)])
    with torch.autocast(vectors.device.type, enabled=False):
        whitened = unit(_shuffle_and_whiten(vectors, orders, size=size, ridge=ridge))
        return diagonal_cross_entropy(whitened[:1] @ whitened[1:].mT / temperature)


def _shuffle_and_whiten(vectors: Tensor, orders: Sequence[Tensor], *, size: int, ridge: float) -> Tensor:
    """Whiten each of s batches of vectors by its order, all groups at once. (s, n, d), (d,) each -> (s, n, d)"""
    shuffles, rows, width = vectors.shape
    check_above_zero("ridge", ridge)
    for order in orders:
        if order.shape != (width,):
            raise InputError(f"order: the shape is {tuple(order.shape)}; expected one place for each of {width}")
    if not 1 <= size <= width:
        raise InputError(f"size {size} is not possible; give 1 to {width} dimensions a group")
    divisible, stacked = width - width % size, torch.stack(list(orders))
    with torch.autocast(vectors.device.type, enabled=False):
        full = vectors.to(full_dtype(vectors))
        shuffled = full.gather(2, stacked[:, None].expand_as(full))
        parts = [_whiten(shuffled[..., :divisible].reshape(shuffles, rows, -1, size), ridge)]
        if divisible < width:
            parts.append(_whiten(shuffled[..., divisible:].unsqueeze(2), ridge))
        whitened = torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]
        return whitened.gather(2, stacked.argsort(dim=1)[:, None].expand_as(full))


def _whiten(groups: Tensor, ridge: float) -> Tensor:
    """Whiten each group over the rows: (s, n, groups, size) -> (s, n, groups · size)"""
    rows, size = groups.shape[1], groups.shape[3]
    centred = (groups - groups.mean(1, keepdim=True)).transpose(1, 2)  # (s, groups, n, size)
    covariance = centred.mT @ centred / rows
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(size, dtype=groups.dtype, device=groups.device)
    shifted = covariance + (ridge * variance + _FLOOR)[..., None, None] * identity
    smallest = sqrt(ridge / (size * (1 + ridge)))  # a lower bound of the root's eigenvalues, relative to sqrt(trace)
    root: Tensor = _InverseRoot.apply(shifted.flatten(0, 1), smallest)  # type: ignore[no-untyped-call]
    return (centred @ root.view_as(shifted)).transpose(1, 2).flatten(2)


class _InverseRoot(torch.autograd.Function):
    """A^(-1/2) of symmetric positive matrices, (k, d, d), by matrix signs, which need only matrix products.

    An eigendecomposition would synchronise with the GPU. With R = A^(1/2) the sign of
    [[0, A], [I, 0]] is [[0, R], [R^(-1), 0]]; the gradient is -X with RX + XR = R^(-1) G R^(-1), and the sign of
    [[R, C], [0, -R]] is [[I, 2X], [0, -I]] where RX + XR = C. (Higham 2008, Functions of Matrices, chapters 5 and 6.)
    Computed in float64, as TF32 products would be too inexact.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, smallest: float) -> Tensor:
        exact, size = matrices.double(), matrices.shape[-1]
        trace = exact.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]  # an upper bound of the eigenvalues
        identity = torch.eye(size, dtype=exact.dtype, device=exact.device).expand_as(exact)
        zeros = torch.zeros_like(exact)
        sign = _sign(_blocks(zeros, exact / trace, identity, zeros), smallest)
        inverse = sign[:, size:, :size] / trace.sqrt()
        ctx.save_for_backward(sign[:, :size, size:], inverse, trace)  # the root of the matrix divided by its trace
        ctx.smallest = smallest
        return inverse.to(matrices.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), (root, inverse, trace) = gradients, ctx.saved_tensors
        exact, size = gradient.double(), root.shape[-1]
        middle = inverse @ ((exact + exact.mT) / 2) @ inverse
        sign = _sign(_blocks(root, middle, torch.zeros_like(root), -root), ctx.smallest)
        return (sign[:, :size, size:] / (-2 * trace.sqrt())).to(gradient.dtype), None


def _blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """The block matrices [[a, b], [c, d]]: (k, d, d) each -> (k, 2d, 2d)"""
    upper, lower = torch.cat([a, b], dim=2), torch.cat([c, d], dim=2)
    return torch.cat([upper, lower], dim=1)


def _sign(matrices: Tensor, smallest: float) -> Tensor:
    """The sign of matrices whose eigenvalues have absolute values from `smallest` to 1 (Newton-Schulz iteration).

    Scaled before each step so that the smallest value grows fastest (Chen and Chow 2014), until it is 1.
    """
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    while smallest < 1 - _TOLERANCE:
        scale = sqrt(3 / (1 + smallest + smallest**2))
        matrices = matrices @ torch.baddbmm(identity, matrices, matrices, beta=1.5 * scale, alpha=-0.5 * scale**3)
        smallest = scale * smallest * (3 - (scale * smallest) ** 2) / 2
    return matrices
