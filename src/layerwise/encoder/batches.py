"""Batches by token budget over length-sorted sentences, so that little is padded and memory stays level."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder.tokens import Numbers, Tokens

_MOST_PADDED = 4  # times the budget, of the tokens of a packed batch with the padding that pooling sees


@dataclass(frozen=True)
class Batch:
    """Some sentences of a window: which rows they are, and their tokens one after the other, longest first.

    `places` (sentences, 3) says which tokens of a prompt are pooled; None where all are. A packed batch is read without
    its padding (packing.py).
    """

    rows: Numbers
    lengths: Numbers
    tokens: Numbers
    places: Numbers | None = None
    is_packed: bool = False

    @property
    def size(self) -> int:
        """How many tokens the model will see, with the padding that it sees."""
        return len(self.tokens) if self.is_packed else int(self.lengths[0]) * len(self.rows)

    def split(self) -> tuple["Batch", "Batch"]:
        """Two halves, for a batch that does not fit into memory."""
        half = len(self.rows) // 2
        cut = int(self.lengths[:half].sum())
        first, second = (None, None) if self.places is None else (self.places[:half], self.places[half:])
        return (
            Batch(self.rows[:half], self.lengths[:half], self.tokens[:cut], first, self.is_packed),
            Batch(self.rows[half:], self.lengths[half:], self.tokens[cut:], second, self.is_packed),
        )

    def padded(self, pad_id: int) -> tuple[Tensor, ...]:
        """Token numbers and mask, both (batch, longest), and the places where there are any."""
        places = () if self.places is None else (torch.from_numpy(self.places),)
        return (*padded(self.tokens, self.lengths, pad_id), *places)


def padded(tokens: Numbers, lengths: Numbers, pad_id: int) -> tuple[Tensor, Tensor]:
    """Token numbers, one text after the other, as rows filled up; and their mask. Both int64 (texts, longest)."""
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = tokens
    return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))


def token_batches(
    tokens: Tokens, *, budget: int, slack: float = 0.1, may_pad: bool = True, packs: bool = False
) -> Iterator[Batch]:
    """Cut sentences into batches of at most `budget` tokens, the longest first.

    A batch that is at least a quarter full also ends where the next sentence is shorter than its longest by more
    than `slack`: then less than that share of the work is padding, and short sentences still travel together. Where
    nothing may be padded, all sentences of a batch have one length. Packed batches are as few as can be, and alike in
    size, whatever their lengths.
    """
    order = np.argsort(-tokens.lengths, kind="stable")
    sorted_lengths = tokens.lengths[order]
    ends = np.concatenate([[0], np.cumsum(sorted_lengths)])
    begins = (np.cumsum(tokens.lengths) - tokens.lengths)[order]
    flat = tokens.numbers[np.repeat(begins - ends[:-1], sorted_lengths) + np.arange(ends[-1])]
    start, share = 0, _share(int(ends[-1]), int(tokens.lengths.max(initial=1)), budget)
    while start < len(order):
        if packs:
            stop = _end_of_packed(sorted_lengths, ends, start, budget, share)
        else:
            stop = _end_of_batch(sorted_lengths, start, budget, slack, may_pad)
        rows = order[start:stop]
        pooled = None if tokens.places is None else tokens.places[rows]
        yield Batch(rows, sorted_lengths[start:stop], flat[ends[start] : ends[stop]], pooled, packs)
        start = stop


def _end_of_batch(lengths: Numbers, start: int, budget: int, slack: float, may_pad: bool) -> int:
    longest = int(lengths[start])
    stop = start + max(1, budget // longest)
    if not may_pad:
        return min(stop, int(np.searchsorted(-lengths, -longest, side="right")))
    quarter = start + max(1, budget // (4 * longest))
    shorter = int(np.searchsorted(-lengths, -longest / (1 + slack), side="right"))
    return min(stop, max(quarter, shorter), len(lengths))


def _share(total: int, longest: int, budget: int) -> int:
    """The tokens of each of the fewest batches, so that a batch has room for the sentence that reaches them."""
    room = max(budget // 2, budget - longest + 1, 1)
    return math.ceil(total / max(1, math.ceil(total / room)))


def _end_of_packed(lengths: Numbers, ends: Numbers, start: int, budget: int, share: int) -> int:
    """A batch's share of all tokens; pooling has them padded, one layer at a time, which must not take much memory."""
    reached = int(np.searchsorted(ends, ends[start] + share, side="left"))
    full = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
    return max(start + 1, min(reached, full, start + _MOST_PADDED * budget // int(lengths[start])))
