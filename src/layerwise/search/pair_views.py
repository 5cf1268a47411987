"""The views of sentence pairs, and the products by which sets of them are compared."""

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

    `columns` says which column each view is: n for column n, ~n for its negative; None where every column is a view. A
    set does not begin with a negative, for a view and its negative say the same alone.
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
    def own(self) -> Tensor:
        """Of each view alone: left with right, left with left, right with right. (3, pairs, views)"""
        sides = ((self.left, self.right), (self.left, self.left), (self.right, self.right))
        products = torch.stack([(one * other).sum(-1) for one, other in sides])
        return products if self.columns is None else products[..., self._places]

    def added(self, sets: Sequence[tuple[int, ...]]) -> Tensor:
        """What each view adds to these products of a set's sums, beside its own. (sets, 3, pairs, views)"""
        left, right = (torch.stack([self._sum(side, views) for views in sets], 1) for side in (self.left, self.right))
        with small_products():
            crossed = left @ self.right.mT + right @ self.left.mT  # (pairs, sets, columns)
            products = torch.stack([crossed, 2 * (left @ self.left.mT), 2 * (right @ self.right.mT)], 1)
        if self.columns is not None:
            products = products[..., self._places] * self._signs
        return products.movedim(2, 0).movedim(2, 1)

    def pick(self, views: Sequence[int] | NDArray[np.intp] | slice) -> "PairViews":
        """Some of the views; of a slice of columns there is no copy."""
        some = views if isinstance(views, slice) else list(views)
        if self.columns is None:
            return PairViews(self.left[:, some], self.right[:, some])
        columns = self.columns[some]
        used, places = np.unique(np.where(columns < 0, ~columns, columns), return_inverse=True)
        return PairViews(self.left[:, used], self.right[:, used], np.where(columns < 0, ~places, places))

    def cosines(self, views: Sequence[int], weights: Sequence[float] | None = None) -> Tensor:
        """Of the sums of some views, each so many times: (pairs,)"""
        counts = torch.tensor(weights or [1.0] * len(views), dtype=torch.float64, device=self.left.device)
        left, right = (self._sum(side, views, counts) for side in (self.left, self.right))
        return cosine_of([(left * right).sum(1), left.square().sum(1), right.square().sum(1)])

    def taken_first(self, scores: Tensor) -> Tensor:
        """The scores (..., views) of single views, -inf for those that no set begins with."""
        return scores if self.columns is None else scores.masked_fill(self._signs.cpu() < 0, -torch.inf)

    def leaving_nothing(self, views: Sequence[int]) -> list[int]:
        """The views that a set may not take because its sum would be 0, of which rounding alone has a direction."""
        if self.columns is None:
            return []
        columns = set(self.columns[list(views)].tolist())
        alone = [column for column in columns if ~column not in columns]
        return np.flatnonzero(self.columns == ~alone[0]).tolist() if len(alone) == 1 else []

    def _sum(self, side: Tensor, views: Sequence[int], counts: Tensor | None = None) -> Tensor:
        """Some views of a side added up, each so many times: (pairs, width)"""
        places = list(views) if self.columns is None else self._places[list(views)]
        picked = side[:, places] if counts is None else side[:, places].to(counts.dtype) * counts[:, None]
        return (picked if self.columns is None else picked * self._signs[list(views), None]).sum(1)

    @cached_property
    def _places(self) -> Tensor:
        """The column of each view, or of what it is the negative of: (views,)"""
        columns = torch.as_tensor(self.columns, device=self.left.device)
        return torch.where(columns < 0, ~columns, columns)

    @cached_property
    def _signs(self) -> Tensor:
        """1, or -1 for a negative: (views,)"""
        return torch.where(torch.as_tensor(self.columns, device=self.left.device) < 0, -1.0, 1.0).to(self.left.dtype)


def cosine_of(products: Sequence[Tensor] | Tensor) -> Tensor:
    """Of sums, by their products: left with right, left with left, right with right."""
    return products[0] / (products[1] * products[2]).clamp_min(1e-30).sqrt()
