"""Sort rows of similarities with a small integer payload, by one sort of plain 64-bit numbers.

A similarity is shifted to a positive float64, whose bits sort like its value; its lowest bits are replaced by the
pair's payload (the rank of its grade, its label). Sorting the result needs no indices and no gather, which would
otherwise dominate the time of a search. In exchange, similarities closer than about 2^(bits - 51), 2e-12 up to 2,000
pairs, count as equal. That is intended: equal sentences have a cosine of 1 up to rounding errors, and are ties.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_SHIFT = 3.0  # cosines become 2 to 4, where float64 has steps of 2^-51
_STEP = 2.0**-51
_MIN_BITS = 12  # of a key for the payload, so that equal sentences are ties by every metric


@dataclass(frozen=True)
class Sorted:
    """Rows in ascending order: the pairs' payloads (rows, n), and which are tied with the next (rows, n - 1)."""

    carried: Tensor
    tied: Tensor | None


def sort_carrying(similarities: Tensor, numbers: Tensor, bits: int) -> Sorted:
    """Sort each row; `numbers` (n,) are integers below 2^bits. (rows, n) -> Sorted"""
    bits = max(bits, _MIN_BITS)
    middle = _STEP * 2 ** (bits - 1)  # of a step; at its edge, equal values would fall into two steps
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
    """Sort rows in ascending order; on a CPU in place by NumPy, which is faster without indices."""
    if values.device.type != "cpu":
        return torch.sort(values, dim=-1).values
    values.numpy().sort(axis=-1)
    return values


@dataclass(frozen=True)
class Ties:
    """The groups of equal similarities in a block: the row, first position and length of each."""

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
        """The corrections of each row for average ranks: of the sum of rank x payload, and of 12 x the variance."""
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
    """The number of each position's group of ties in its row: (rows, n - 1) -> (rows, n)"""
    return torch.nn.functional.pad(~tied, (1, 0)).cumsum(1)


def sum_of_ties(values: Tensor, tied: Tensor) -> Tensor:
    """The sum of each group of ties, padded with zeros: (rows, n), (rows, n - 1) -> (rows, n)"""
    return torch.zeros_like(values).scatter_add_(1, numbers_of_ties(tied), values)
