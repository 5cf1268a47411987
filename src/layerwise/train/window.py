"""A window of rows, tokenised: its batches are cut from one flat array of tokens, without a loop over them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.train.cut import Cut, Positions
from layerwise.train.shuffled import Block

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """The tokens of some rows, and the batches made of them.

    Args:
        rows: The rows' numbers in the corpus, (n,).
        tokens: All tokens, one text after the other.
        starts: Where in `tokens` each text starts, (columns, n).
        lengths: How many tokens each text has, (columns, n).
        parts: This process's part of each batch: positions among the n rows.
        truncated: How many texts were cut to the model's length.
        dropped: How many rows are in no batch.
    """

    rows: Numbers
    tokens: Numbers
    starts: Numbers
    lengths: Numbers
    parts: Sequence[Positions]
    truncated: int
    dropped: int

    def after(self, batches: int) -> "Window":
        """Without the first so many batches; with all of them for 0 and less."""
        return replace(self, parts=self.parts[max(0, batches) :])

    def padded(self, part: Positions, *, pad_id: int, copies: int = 1) -> dict[str, Tensor]:
        """A batch: token numbers and mask, (copies·columns·b, longest), and the rows' numbers, (b,)."""
        lengths, starts = self.lengths[:, part].reshape(-1, 1), self.starts[:, part].reshape(-1, 1)
        places = np.arange(lengths.max())
        mask = places < lengths
        tokens = np.where(mask, self.tokens.take(starts + places, mode="clip"), pad_id)
        stacked = (np.tile(array, (copies, 1)) for array in (tokens, mask.astype(np.int64)))
        ids, attention = map(torch.from_numpy, stacked)
        return {"input_ids": ids, "attention_mask": attention, "rows": torch.from_numpy(self.rows[part])}


def tokenised(
    block: Block, tokenizer: SentenceTokenizer, *, cut: Cut, random: np.random.Generator | None = None
) -> Window:
    """A block's window. With `random`, rows are put together by length and the batches shuffled; else as they come."""
    kept = np.arange(len(block) - cut.dropped(len(block)))
    if random is None:
        parts = cut.parts(kept)
        return _window(block, tokenizer, np.concatenate([kept[:0], *parts]), cut, parts)
    window = _window(block, tokenizer, kept, cut, [])
    return replace(window, parts=_by_length(window.lengths.max(axis=0)[kept], cut, random))


def _window(block: Block, tokenizer: SentenceTokenizer, own: Positions, cut: Cut, parts: Sequence[Positions]) -> Window:
    """Tokenise the rows at the positions `own`; the others are left without tokens."""
    places = own.tolist()
    found = tokenizer([column[place] for column in block.columns for place in places])
    each = np.fromiter(map(len, found.ids), dtype=np.int64, count=len(found.ids))
    tokens = np.fromiter(chain.from_iterable(found.ids), dtype=np.int64, count=int(each.sum()))
    starts, lengths = np.zeros((2, len(block.columns), len(block)), dtype=np.int64)
    lengths[:, own] = each.reshape(len(block.columns), -1)
    starts[:, own] = (np.cumsum(each) - each).reshape(len(block.columns), -1)
    return Window(block.rows, tokens, starts, lengths, parts, found.truncated, cut.dropped(len(block)))


def _by_length(longest: Numbers, cut: Cut, random: np.random.Generator) -> list[Positions]:
    """Batches of rows of like length in random order; a last, smaller batch stays as it is, whatever its lengths."""
    full = cut.full(len(longest))
    order = np.concatenate([np.argsort(longest[:full], kind="stable"), np.arange(full, len(longest))])
    parts = cut.parts(order)
    batches = full // cut.joint
    return [*(parts[place] for place in random.permutation(batches)), *parts[batches:]]
