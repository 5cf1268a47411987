"""Batches by token budget over length-sorted sentences, which limits padding and keeps memory use even."""

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
    """Sentences of a window: their row numbers, and their tokens concatenated, longest sentence first.

    `places` (sentences, 3) says which tokens of a prompt are pooled; None where all are. A packed batch is run without
    padding (packing.py).
    """

    rows: Numbers
    lengths: Numbers
    tokens: Numbers
    places: Numbers | None = None
    is_packed: bool = False

    @property
    def size(self) -> int:
        """The number of tokens that the model processes, padding included."""
        return len(self.tokens) if self.is_packed else int(self.lengths[0]) * len(self.rows)

    def split(self) -> tuple["Batch", "Batch"]:
        """Split a batch that does not fit into memory into two halves."""
        half = len(self.rows) // 2
        cut = int(self.lengths[:half].sum())
        first, second = (None, None) if self.places is None else (self.places[:half], self.places[half:])
        return (
            Batch(self.rows[:half], self.lengths[:half], self.tokens[:cut], first, self.is_packed),
            Batch(self.rows[half:], self.lengths[half:], self.tokens[cut:], second, self.is_packed),
        )

    def padded(self, pad_id: int) -> tuple[Tensor, ...]:
        """Return input ids and attention mask, both (batch, longest), and `places` unless it is None."""
        places = () if self.places is None else (torch.from_numpy(self.places),)
        return (*padded(self.tokens, self.lengths, pad_id), *places)


def padded(tokens: Numbers, lengths: Numbers, pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad concatenated token ids; return ids and attention mask, both int64 (texts, longest)."""
    if len(lengths) == 1:
        return torch.from_numpy(tokens[None]), torch.ones((1, len(tokens)), dtype=torch.int64)
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = tokens
    return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))


def token_batches(
    tokens: Tokens, *, budget: int, overhead: int | None = None, may_pad: bool = True, packs: bool = False
) -> Iterator[Batch]:
    """Cut sentences into batches of at most `budget` tokens, the longest first.

    `overhead` is the fixed cost of a batch, in tokens: batches minimise the sum of padding and overhead. Without it, a
    batch that is at least a quarter full ends where the length changes. If padding is not allowed, all sentences of a
    batch have the same length. Packed batches are as few as possible and of similar size, whatever the lengths.
    """
    if len(tokens) == 1:  # a server's most frequent batch, for which sorting takes longer than tokenisation
        yield Batch(np.zeros(1, dtype=np.int64), tokens.lengths, tokens.numbers, tokens.places, packs)
        return
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
    """Yield the batch ends that minimise total size plus overhead; sentences of one length stay together."""
    bounds = np.flatnonzero(np.diff(lengths, prepend=0, append=0))  # of sentences of one length
    longest = lengths[bounds[:-1]]
    rooms = np.maximum(1, budget // longest)
    least, end_of = np.zeros(len(bounds)), np.zeros(len(longest), dtype=np.int64)
    for first in range(len(longest) - 1, -1, -1):  # sentences of this length and all shorter ones
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
    """Yield the ends of batches at a change of length: once a quarter full, or always if padding is not allowed."""
    start = 0
    while start < len(lengths):
        longest = int(lengths[start])
        least = start + max(1, budget // (4 * longest)) if may_pad else 0
        changes = int(np.searchsorted(-lengths, -longest, side="right"))
        start = min(start + max(1, budget // longest), max(least, changes), len(lengths))
        yield start


def _packed_cuts(lengths: Numbers, ends: Numbers, budget: int) -> Iterator[int]:
    """Yield the ends of equal shares of all tokens; bounded, because pooling pads one layer of the batch at a time."""
    start, share = 0, _share(int(ends[-1]), int(lengths.max(initial=1)), budget)
    while start < len(lengths):
        reached = int(np.searchsorted(ends, ends[start] + share, side="left"))
        full = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
        start = max(start + 1, min(reached, full, start + _MOST_PADDED * budget // int(lengths[start])))
        yield start


def _share(total: int, longest: int, budget: int) -> int:
    """Return the tokens per batch for the fewest batches, leaving room for the sentence that completes a batch."""
    room = max(budget // 2, budget - longest + 1, 1)
    return math.ceil(total / max(1, math.ceil(total / room)))
