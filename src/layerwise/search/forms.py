"""Quadratic forms of Gram matrices: inner products of sums over sets of layers, without the vectors.

For a pair with views V and W, the sum over a set D of layers has the product 1ᴰᵀ(V Wᵀ)1ᴰ: a number that depends on the
(layers, layers) Gram matrix only, whatever the width. This module evaluates the forms of a stack of symmetric Gram
matrices for many sets at once, in two ways: for any weights (`weighted`), and for all 2^k sets of k layers (`Halves`),
where the layers are split into two parts, so that each set costs a handful of additions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def symmetric(grams: Tensor) -> Tensor:
    """The symmetric part, which has the same quadratic forms: (..., layers, layers) -> same shape"""
    return (grams + grams.transpose(-1, -2)) / 2


def triangle(grams: Tensor) -> Tensor:
    """Symmetric matrices as the coefficients of products of weights: (items, l, l) -> (l (l + 1) / 2, items)"""
    rows, columns = _upper(grams.shape[-1])
    factor = torch.where(rows == columns, 1.0, 2.0).to(grams)
    return (grams[:, rows, columns] * factor).T.contiguous()


def products(weights: Tensor) -> Tensor:
    """Products of weights in the order of `triangle`: (rows, l) -> (rows, l (l + 1) / 2)"""
    rows, columns = _upper(weights.shape[-1])
    return weights[:, rows] * weights[:, columns]


def weighted(weights: Tensor, coefficients: Tensor) -> Tensor:
    """wᵀ G w for any weights: (rows, l), (l (l + 1) / 2, items) -> (rows, items)"""
    return products(weights) @ coefficients


@dataclass(frozen=True)
class Halves:
    """All sets of layers, each the union of an upper set U and a lower set B: q(U + B) = q(U) + q(B) + 2 uᵀ G b.

    A block is one upper set with all lower sets. q(B) is computed once as a table; the rest of a block is one small
    matrix product.
    """

    upper: tuple[int, ...]  # layers, including those that every set contains
    lower: tuple[int, ...]
    table: Tensor  # (2^len(lower), items): q(B)
    rows: Tensor  # (2^len(lower), len(lower) + 1): each B as 0 and 1, and a 1 for q(U)
    coefficients: Tensor  # of the upper layers' products
    cross: Tensor  # (len(upper), len(lower) * items): 2 G between upper and lower layers

    @classmethod
    def of(cls, grams: Tensor, upper: Sequence[int], lower: Sequence[int]) -> "Halves":
        """From symmetric Gram matrices (items, layers, layers)."""
        bits = torch.arange(2 ** len(lower), device=grams.device)[:, None] >> torch.arange(
            len(lower), device=grams.device
        )
        members = (bits & 1).to(grams)
        cross = 2 * grams[:, list(upper)][:, :, list(lower)]
        return cls(
            tuple(upper),
            tuple(lower),
            weighted(members, triangle(grams[:, list(lower)][:, :, list(lower)])),
            torch.cat([members, members.new_ones(len(members), 1)], dim=1),
            triangle(grams[:, list(upper)][:, :, list(upper)]),
            cross.permute(1, 2, 0).reshape(len(upper), len(lower) * len(grams)),
        )

    @property
    def items(self) -> int:
        """The number of Gram matrices."""
        return self.table.shape[1]

    @property
    def lower_masks(self) -> NDArray[np.uint64]:
        """The lower sets as masks, in the order of a block's rows."""
        numbers = np.arange(2 ** len(self.lower), dtype=np.uint64)
        return scatter_bits(numbers, self.lower)

    def columns(self, uppers: Tensor) -> Tensor:
        """The right-hand matrices of the blocks of upper sets, given as rows of 0 and 1: (n, len(lower) + 1, items)"""
        cross = (uppers @ self.cross).reshape(len(uppers), len(self.lower), self.items)
        return torch.cat([cross, weighted(uppers, self.coefficients)[:, None]], dim=1)

    def block(self, columns: Tensor, rows: Tensor | None = None) -> Tensor:
        """The forms of one upper set with all lower sets, or with those at `rows`: (rows, items)"""
        if rows is None:
            return torch.addmm(self.table, self.rows, columns)
        return torch.addmm(self.table[rows], self.rows[rows], columns)


def _upper(layers: int) -> tuple[Tensor, Tensor]:
    """The row and column indices of a matrix's upper triangle, which may be empty."""
    rows, columns = np.triu_indices(layers)
    return torch.from_numpy(rows), torch.from_numpy(columns)


def scatter_bits(numbers: NDArray[np.uint64], layers: Sequence[int]) -> NDArray[np.uint64]:
    """Move bit i of every number to bit layers[i]."""
    masks = np.zeros_like(numbers)
    for place, layer in enumerate(layers):
        masks |= (numbers >> np.uint64(place) & np.uint64(1)) << np.uint64(layer)
    return masks
