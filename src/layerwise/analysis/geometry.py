"""Where embeddings lie on the sphere: alignment and uniformity (Wang & Isola 2020), anisotropy (Ethayarajh 2019).

Smaller is better for the first two; a high anisotropy says that all sentences lie in a narrow cone.
"""

from math import inf, log

import torch
from torch import Tensor

from layerwise.errors import InputError

_BLOCK = 1024  # rows against all others at a time, so that memory grows with the number of embeddings alone


def alignment(left: Tensor, right: Tensor, *, power: float = 2) -> Tensor:
    """The mean distance, to a power, of pairs that should be alike, as unit vectors. (n, d), (n, d) -> scalar"""
    _check_above_zero("power", power)
    if left.shape != right.shape:
        raise InputError(f"The shapes differ: left {tuple(left.shape)}, right {tuple(right.shape)}; give pairs")
    differences = _units("left", left) - _units("right", right)
    if power == 2:
        return differences.square().sum(dim=-1).mean()
    distances: Tensor = torch.linalg.vector_norm(differences, dim=-1)
    return distances.pow(power).mean()


def uniformity(embeddings: Tensor, *, t: float = 2) -> Tensor:
    """The log of the mean of exp(-t * squared distance) over all different pairs, as unit vectors. (n, d) -> scalar

    Exact: time grows with n², memory with n unless a gradient is asked for. 0 where all are the same, about -2t where
    all are at right angles, as random ones of many dimensions are.
    """
    _check_above_zero("t", t)
    units = _units("embeddings", embeddings)
    count = len(units)
    if count < 2:
        raise InputError("uniformity is of pairs, and one embedding came; give two at the very least")
    sums = []
    with torch.autocast(units.device.type, enabled=False):
        for start in range(0, count - 1, _BLOCK):
            rows, later = units[start : start + _BLOCK], units[start:]
            exponents = 2 * t * (rows @ later.T - 1)  # the squared distance of unit vectors is 2 - 2 cosine
            pairs = torch.ones_like(exponents, dtype=torch.bool).triu(1)
            sums.append(exponents.masked_fill(~pairs, -torch.inf).flatten().logsumexp(dim=0))
    return torch.stack(sums).logsumexp(dim=0) - log(count * (count - 1) / 2)


def anisotropy(embeddings: Tensor) -> Tensor:
    """The mean cosine of all different rows. (n, d) -> scalar; 1 where all point the same way, about 0 at random

    Exact, without an (n, n) matrix: the cosines of all rows, each with itself included, add up to the squared length of
    the sum of the unit vectors.
    """
    units = _units("embeddings", embeddings)
    count = len(units)
    if count < 2:
        raise InputError("anisotropy is of pairs, and one embedding came; give two at the very least")
    return (units.sum(dim=0).square().sum() - units.square().sum()) / (count * (count - 1))


def _units(name: str, vectors: Tensor) -> Tensor:
    """Rows of length 1, in float32 at least. (n, d) -> (n, d)"""
    if vectors.ndim != 2 or not vectors.numel():
        raise InputError(f"{name}: the shape is {tuple(vectors.shape)}; expected (rows, width), each at least 1")
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    if (norms == 0).any():
        raise InputError(f"{name}: row {int(norms.argmin())} is zero and has no direction; leave it out")
    return vectors / norms


def _check_above_zero(name: str, value: float) -> None:
    if not 0 < value < inf:
        raise InputError(f"{name} {value} is not possible; give a number above 0")
