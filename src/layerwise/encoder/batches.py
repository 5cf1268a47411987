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
    tokens: Tokens, *, budget: int, overhead: int | None = None, may_pad: bool = True, packs: bool = False
) -> Iterator[Batch]:
    """Cut sentences into batches of at most `budget` tokens, the longest first.

    `overhead` is what a batch costs whatever is in it, in tokens: batches are cut so that padding and overhead are
    least together. Without it, batches a quarter full end where the length changes. Where nothing may be padded, all
    sentences of a batch have one length. Packed batches are as few as can be and alike in size, whatever the lengths.
    """
    order = np.argsort(-tokens.lengths, kind="stable")
    lengths = tokens.lengths[order]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    begins = (np.cumsum(tokens.lengths) - tokens.lengths)[order]
    flat = tokens.numbers[np.repeat(begins - ends[:-1], lengths) + np.arange(ends[-1])]
    if packs:
        cuts = _packed_cuts(lengths, ends, budget)
    elif overhead is not None and may_pad:
        cuts = _cheapest_cuts(lengths, budget, overhead)
    else:
        cuts = _full_cuts(lengths, budget, may_pad)
    start = 0
    for stop in cuts:
        rows = order[start:stop]
        pooled = None if tokens.places is None else tokens.places[rows]
        yield Batch(rows, lengths[start:stop], flat[ends[start] : ends[stop]], pooled, packs)
        start = stop


def _cheapest_cuts(lengths: Numbers, budget: int, overhead: int) -> Iterator[int]:
    """Where batches end, by the least sum of their sizes and overheads; sentences of one length stay together."""
    bounds = np.flatnonzero(np.diff(lengths, prepend=0, append=0))  # of sentences of one length
    longest = lengths[bounds[:-1]]
    rooms = np.maximum(1, budget // longest)
    least, end_of = np.zeros(len(bounds)), np.zeros(len(longest), dtype=np.int64)
    for first in range(len(longest) - 1, -1, -1):  # the sentences of this length and of all shorter ones
        counts = bounds[first + 1 :] - bounds[first]
        costs = longest[first] * counts + overhead * -(-counts // rooms[first]) + least[first + 1 :]
        best = int(costs.argmin())
        least[first], end_of[first] = costs[best], first + 1 + best
    first = 0
    while first < len(longest):
        start, stop = int(bounds[first]), int(bounds[end_of[first]])
        yield from range(start + int(rooms[first]), stop, int(rooms[first]))
        yield stop
        first = int(end_of[first])


def _full_cuts(lengths: Numbers, budget: int, may_pad: bool) -> Iterator[int]:
    """Batches at least a quarter full that end where the length changes, or all of them there."""
    start = 0
    while start < len(lengths):
        longest = int(lengths[start])
        least = start + max(1, budget // (4 * longest)) if may_pad else 0
        changes = int(np.searchsorted(-lengths, -longest, side="right"))
        start = min(start + max(1, budget // longest), max(least, changes), len(lengths))
        yield start


def _packed_cuts(lengths: Numbers, ends: Numbers, budget: int) -> Iterator[int]:
    """A batch's share of all tokens; pooling has them padded, one layer at a time, which must not take much memory."""
    start, share = 0, _share(int(ends[-1]), int(lengths.max(initial=1)), budget)
    while start < len(lengths):
        reached = int(np.searchsorted(ends, ends[start] + share, side="left"))
        full = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
        start = max(start + 1, min(reached, full, start + _MOST_PADDED * budget // int(lengths[start])))
        yield start


def _share(total: int, longest: int, budget: int) -> int:
    """The tokens of each of the fewest batches, so that a batch has room for the sentence that reaches them."""
    room = max(budget // 2, budget - longest + 1, 1)
    return math.ceil(total / max(1, math.ceil(total / room)))
