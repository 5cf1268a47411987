"""Cosines in float32 at least, whatever the encoder computed in: at a temperature of 0.01 half precision is noise."""

import torch
from torch import Tensor

from layerwise.objectives.shapes import check_rows


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Every left vector with every right one. (n, d), (m, d) -> (n, m)

    In float32 also under autocast and of half-precision vectors; float64 stays. A zero vector's cosines are 0.
    """
    check_rows(left=left, right=right)
    dtype = full_dtype(left, right)
    with torch.autocast(left.device.type, enabled=False):
        return unit(left.to(dtype)) @ unit(right.to(dtype)).T


def own_cosines(anchors: Tensor, others: Tensor) -> Tensor:
    """Every anchor with its own k vectors only, precise as `cosines`. (n, d), (n, k, d) -> (n, k)"""
    dtype = full_dtype(anchors, others)
    with torch.autocast(anchors.device.type, enabled=False):
        return torch.bmm(unit(others.to(dtype)), unit(anchors.to(dtype)).unsqueeze(-1)).squeeze(-1)


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zero stays zero. (..., d) -> (..., d)"""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norms.masked_fill(norms == 0, 1)  # a tiny norm instead would blow up a zero vector's gradient


def full_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype that a loss of these is computed in: float32, or float64 where one of them is."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype
