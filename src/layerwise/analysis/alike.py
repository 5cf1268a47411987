"""How alike two representations of the same sentences are: linear CKA (Kornblith et al. 2019).

1 for the same up to rotation, shift and one scale, 0 where no direction of one goes along with one of the other; NaN
where one does not vary. With more sentences than dimensions the (d, d) products are taken, else the (n, n) ones, which
give the same number: |YᵀX|² = ⟨XXᵀ, YYᵀ⟩.
"""

import torch
from torch import Tensor

from layerwise.analysis.centred import centred
from layerwise.errors import InputError


def cka(left: Tensor, right: Tensor) -> Tensor:
    """Linear CKA of the rows of two representations. (n, d), (n, e) -> scalar"""
    x, y = _scaled("left", left), _scaled("right", right)
    if len(x) != len(y):
        raise InputError(f"left has {len(x)} rows and right {len(y)}; give two representations of the same sentences")
    x, y = (side.to(torch.promote_types(x.dtype, y.dtype)) for side in (x, y))
    with torch.autocast(x.device.type, enabled=False):
        if len(x) > max(x.shape[1], y.shape[1]):
            return (x.T @ y).square().sum() / (_length(x.T @ x) * _length(y.T @ y))
        one, other = x @ x.T, y @ y.T
        return (one * other).sum() / (_length(one) * _length(other))


def layer_cka(views: Tensor) -> Tensor:
    """Linear CKA of every layer with every other, each centred once. (n, layers, d) -> (layers, layers)"""
    if views.ndim != 3 or not views.numel():
        raise InputError(f"views: the shape is {tuple(views.shape)}; expected (sentences, layers, width)")
    layers = [_scaled("views", views[:, layer]) for layer in range(views.shape[1])]
    with torch.autocast(views.device.type, enabled=False):
        found = _by_width(layers) if len(views) > views.shape[2] else _by_rows(layers)
    lengths = found.diagonal().sqrt()
    return found / lengths.outer(lengths)


def _by_width(layers: list[Tensor]) -> Tensor:
    """Squared lengths of every two layers' (d, d) products, each pair once."""
    found = layers[0].new_empty(len(layers), len(layers))
    for place, layer in enumerate(layers):
        for other in range(place + 1):
            found[place, other] = found[other, place] = (layer.T @ layers[other]).square().sum()
    return found


def _by_rows(layers: list[Tensor]) -> Tensor:
    """The same from every layer's (n, n) Gram matrix, made once."""
    grams = torch.stack([(layer @ layer.T).flatten() for layer in layers])
    return grams @ grams.T


def _scaled(name: str, vectors: Tensor) -> Tensor:
    """Centred, and of length 1 as a whole: squares of squares stay in range."""
    around = centred(name, vectors)
    return around / _length(around)


def _length(matrix: Tensor) -> Tensor:
    return matrix.square().sum().sqrt()
