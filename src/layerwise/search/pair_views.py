"""The views of sentence pairs, and the inner products from which the cosines of sums of views are computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError
from layerwise.threads import small_products


@dataclass(frozen=True, eq=False)
class PairViews:
    """The views of pairs, left and right: (pairs, columns, width).

    `columns` maps each view to its column: n for column n, ~n for its negative; None if the views are the columns. A
    set must not start with a negative, because a view and its negative have the same cosines.
    """

    left: Tensor
    right: Tensor
    columns: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape or self.left.ndim != 3:
            raise InputError(f"The two sides' views differ: {tuple(self.left.shape)} and {tuple(self.right.shape)}")

    def __len__(self) -> int:
        return self.left.shape[1] if self.columns is None else len(self.columns)

    @cached_property
    def self_products(self) -> Tensor:
        """Each view's inner products left · right, left · left and right · right: (3, pairs, views)"""
        sides = ((self.left, self.right), (self.left, self.left), (self.right, self.right))
        products = torch.stack([(first * second).sum(-1) for first, second in sides])
        return products if self.columns is None else products[..., self._column_index]

    def cross_products(self, sets: Sequence[tuple[int, ...]]) -> Tensor:
        """What each view adds to a set's products beyond its self products: (sets, 3, pairs, views)"""
        left, right = (torch.stack([self._sum(side, views) for views in sets], 1) for side in (self.left, self.right))
        with small_products():
            mixed = left @ self.right.mT + right @ self.left.mT  # (pairs, sets, columns)
            products = torch.stack([mixed, 2 * (left @ self.left.mT), 2 * (right @ self.right.mT)], 1)
        if self.columns is not None:
            products = products[..., self._column_index] * self._signs
        return products.movedim(2, 0).movedim(2, 1)

    def pick(self, views: Sequence[int] | NDArray[np.intp] | slice) -> "PairViews":
        """Select views; a slice of columns is not copied."""
        index = views if isinstance(views, slice) else list(views)
        if self.columns is None:
            return PairViews(self.left[:, index], self.right[:, index])
        columns = self.columns[index]
        used, places = np.unique(np.where(columns < 0, ~columns, columns), return_inverse=True)
        return PairViews(self.left[:, used], self.right[:, used], np.where(columns < 0, ~places, places))

    def cosines(self, views: Sequence[int], weights: Sequence[float] | None = None) -> Tensor:
        """The cosines of the pairs by a weighted sum of views: (pairs,)"""
        weight = torch.tensor(weights or [1.0] * len(views), dtype=torch.float64, device=self.left.device)
        left, right = (self._sum(side, views, weight) for side in (self.left, self.right))
        return cosine_from_products([(left * right).sum(1), left.square().sum(1), right.square().sum(1)])

    def mask_negatives(self, scores: Tensor) -> Tensor:
        """Scores of single views (..., views), set to -inf for negatives, which no set starts with."""
        return scores if self.columns is None else scores.masked_fill(self._signs.cpu() < 0, -torch.inf)

    def cancelling(self, views: Sequence[int]) -> list[int]:
        """The views that would make the sum of a set 0, whose direction is only rounding error."""
        if self.columns is None:
            return []
        columns = set(self.columns[list(views)].tolist())
        unpaired = [column for column in columns if ~column not in columns]
        return np.flatnonzero(self.columns == ~unpaired[0]).tolist() if len(unpaired) == 1 else []

    def _sum(self, side: Tensor, views: Sequence[int], weights: Tensor | None = None) -> Tensor:
        """The (weighted) sum of one side's views: (pairs, width)"""
        index = list(views) if self.columns is None else self._column_index[list(views)]
        picked = side[:, index] if weights is None else side[:, index].to(weights.dtype) * weights[:, None]
        return (picked if self.columns is None else picked * self._signs[list(views), None]).sum(1)

    @cached_property
    def _column_index(self) -> Tensor:
        """The column of each view, for a negative that of its positive: (views,)"""
        columns = torch.as_tensor(self.columns, device=self.left.device)
        return torch.where(columns < 0, ~columns, columns)

    @cached_property
    def _signs(self) -> Tensor:
        """1, or -1 for a negative: (views,)"""
        return torch.where(torch.as_tensor(self.columns, device=self.left.device) < 0, -1.0, 1.0).to(self.left.dtype)


def cosine_from_products(products: Sequence[Tensor] | Tensor) -> Tensor:
    """The cosine from the inner products left · right, left · left and right · right."""
    return products[0] / (products[1] * products[2]).clamp_min(1e-30).sqrt()
