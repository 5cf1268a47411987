"""Preprocessing of vectors for measures: float32 at least, unit length, centring."""

import torch
from torch import Tensor

from layerwise.errors import InputError

_ROUNDING = 1e-12  # of the sum of squares: embeddings that vary less differ by the rounding of float32 alone


def as_float(vectors: Tensor) -> Tensor:
    """Convert to float32; float64 is preserved."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def unit_vectors(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zero vectors stay zero. (…, d) -> (…, d)"""
    vectors = as_float(vectors)
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norms.masked_fill(norms == 0, 1)


def centred(name: str, vectors: Tensor) -> Tensor:
    """Subtract the mean of the rows; zeros if only rounding varies. (n >= 2, d) -> (n, d)"""
    check_matrix(name, vectors)
    if len(vectors) < 2:
        raise InputError(f"{name}: one row does not vary; give at least two")
    vectors = as_float(vectors)
    difference = vectors - vectors.mean(dim=0)
    if difference.square().sum() <= _ROUNDING * vectors.square().sum():
        return torch.zeros_like(vectors)
    return difference


def check_matrix(name: str, vectors: Tensor) -> None:
    """Raise for anything but a non-empty matrix."""
    if vectors.ndim != 2 or not vectors.numel():
        raise InputError(f"{name}: the shape is {tuple(vectors.shape)}; expected (rows, width), each at least 1")
