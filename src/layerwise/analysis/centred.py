"""Rows around their mean, which spectra and CKA start from."""

import torch
from torch import Tensor

from layerwise.errors import InputError

_FLAT = 1e-12  # of the squared numbers: what varies less is the rounding of float32, not the embeddings


def centred(name: str, vectors: Tensor) -> Tensor:
    """Rows less their mean, in float32 at least, and zero throughout where nothing but rounding varies.

    (n >= 2, d) -> (n, d)
    """
    if vectors.ndim != 2 or not vectors.numel():
        raise InputError(f"{name}: the shape is {tuple(vectors.shape)}; expected (rows, width), each at least 1")
    if len(vectors) < 2:
        raise InputError(f"{name}: one row does not vary; give two at the very least")
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    around = vectors - vectors.mean(dim=0)
    if around.square().sum() <= _FLAT * vectors.square().sum():
        return torch.zeros_like(vectors)
    return around
