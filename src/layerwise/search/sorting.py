"""Rows of similarities in order, each carrying a small number along, by one sort of plain 64-bit numbers.

A similarity becomes a positive float64, whose bits order as it does; its lowest bits are replaced by the number that
belongs to the pair (its grade's rank, its label). Sorting the result needs no indices and no gathering, which is what
keeps sorting from being most of a search. The price is that similarities closer than about 2^(bits - 51), 2e-12 up to
2,000 pairs, count as equal. That is wanted: equal sentences have a cosine of 1 give or take a rounding error, and are
ties.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_SHIFT = 3.0  # cosines become 2 to 4, where float64 has steps of 2^-51
_STEP = 2.0**-51
_FEWEST_BITS = 12  # that are given up, so that equal sentences are ties whatever the metric carries


@dataclass(frozen=True)
class Sorted:
    """Rows in ascending order: what the pairs carried, and which are tied with the next. (rows, n), (rows, n - 1)"""

    carried: Tensor
    tied: Tensor | None


def sort_carrying(similarities: Tensor, numbers: Tensor, bits: int) -> Sorted:
    """Sort each row; `numbers` (n,) are integers below 2^bits. (rows, n) -> Sorted"""
    bits = max(bits, _FEWEST_BITS)
    middle = _STEP * 2 ** (bits - 1)  # of a step: its edge would part what is equal
    keys = (similarities + (_SHIFT + middle)).view(torch.int64)
    keys.bitwise_and_(-(2**bits)).bitwise_or_(numbers)
    keys = sort_rows(keys.view(torch.float64)).view(torch.int64)
    carried = (keys & (2**bits - 1)).double()
    close = keys.shape[1] > 1 and bool((keys[:, 1:] - keys[:, :-1]).amin() < 2**bits)  # cheap, and mostly false
    if not close:
        return Sorted(carried, None)
    values = keys >> bits
    tied = values[:, 1:] == values[:, :-1]
    return Sorted(carried, tied if bool(tied.any()) else None)


def sort_rows(values: Tensor) -> Tensor:
    """Ascending rows, in place where that is faster (NumPy's sort, without indices, is on a CPU)."""
    if values.device.type != "cpu":
        return torch.sort(values, dim=-1).values
    values.numpy().sort(axis=-1)
    return values


@dataclass(frozen=True)
class Ties:
    """The groups of equal similarities of a block, one entry each: their row, first place and length."""

    row: Tensor
    first: Tensor
    length: Tensor

    @classmethod
    def of(cls, tied: Tensor) -> "Ties":
        """(rows, n - 1) -> groups"""
        row, column = tied.nonzero(as_tuple=True)
        begins = torch.ones_like(row, dtype=torch.bool)
        begins[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1] + 1)
        starts = begins.nonzero()[:, 0]
        ends = torch.cat([starts[1:], starts.new_tensor([len(row)])])
        return cls(row[starts], column[starts], ends - starts + 1)

    def correction(self, carried: Tensor) -> tuple[Tensor, Tensor]:
        """By row, what average ranks instead of places change: in the sum of rank x carried, in 12 x the variance."""
        group = torch.repeat_interleave(torch.arange(len(self.row), device=self.row.device), self.length)
        starts = torch.cumsum(self.length, 0) - self.length
        offset = torch.arange(len(group), device=group.device) - starts[group]
        values = carried[self.row[group], self.first[group] + offset]
        shift = (self.length[group] - 1).double() / 2 - offset.double()
        length = self.length.double()
        product = carried.new_zeros(len(carried)).index_add_(0, self.row[group], shift * values)
        variance = carried.new_zeros(len(carried)).index_add_(0, self.row, length**3 - length)
        return product, variance


def numbers_of_ties(tied: Tensor) -> Tensor:
    """The number of each place's group of equal ones in its row: (rows, n - 1) -> (rows, n)"""
    return torch.nn.functional.pad(~tied, (1, 0)).cumsum(1)


def sum_of_ties(values: Tensor, tied: Tensor) -> Tensor:
    """The sums over groups of equal ones, one after the other, then zeros: (rows, n), (rows, n - 1) -> (rows, n)"""
    return torch.zeros_like(values).scatter_add_(1, numbers_of_ties(tied), values)
