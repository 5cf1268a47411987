"""The loop of all encoding: windows of sentences in, one array for each window out, in order.

While the model works on one window, the next two are tokenised in a thread. On a GPU, results are copied back while the
next batches run, and this machine's cores are left to the tokenizer. When memory runs short, the token budget is
halved.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder.arrays import Array
from layerwise.encoder.batches import Batch, Rows, token_batches
from layerwise.encoder.packing import Packed, packed_batch, to_device
from layerwise.encoder.tokens import PromptTokenizer, SentenceTokenizer
from layerwise.errors import ModelError, is_memory_shortage
from layerwise.threads import one_thread_each

Forward = Callable[..., Tensor]  # of tokens and mask, and of the places of the tokens that are pooled in a prompt
Progress = Callable[[int], object]
S = TypeVar("S")
R = TypeVar("R")

log = logging.getLogger(__name__)
_IN_FLIGHT = 3
_WINDOW_BYTES = 64 << 20
_MOST_ROWS = 16_384


class TokenBudget:
    """How many tokens a batch may hold; halved for good when memory does not suffice.

    `slack` is how much shorter than the longest a sentence of the same batch may be. With none, full batches have no
    padding at all, which lets a GPU take its fastest attention; a CPU prefers fewer batches.
    """

    def __init__(self, tokens: int, *, slack: float = 0.1) -> None:
        self.tokens = tokens
        self.slack = slack

    def halve_below(self, size: int) -> None:
        """Make the budget smaller than a batch that did not fit."""
        self.tokens = max(1, min(self.tokens, size) // 2)
        log.warning("Out of memory: continuing with at most %d tokens a batch", self.tokens)


@dataclass
class _Window:
    """A window's result as it fills: the array is made when the first batch tells the shape of a row."""

    rows: int
    left: int
    filled: Array | None = None

    def put(self, rows: Rows, values: Array) -> None:
        if self.filled is None:
            self.filled = np.empty((self.rows, *values.shape[1:]), dtype=values.dtype)
        self.filled[rows] = values
        self.left -= len(rows)

    def put_all(self, values: Array) -> None:
        """The rows of a batch that is the whole window, in their order."""
        self.filled, self.left = values, 0


@dataclass(frozen=True)
class _Transfer:
    """A batch's result that a GPU may still be copying to this machine's memory."""

    window: _Window
    rows: Rows
    values: Tensor
    copied: "torch.cuda.Event | None"

    @classmethod
    def start(cls, window: _Window, rows: Rows, values: Tensor) -> "_Transfer":
        """Have a GPU copy its result, in the order of the sentences if they are all of the window's."""
        if values.device.type != "cuda":
            return cls(window, rows, values.cpu(), None)
        if len(rows) == window.rows:
            values = torch.empty_like(values).index_copy_(0, to_device(torch.from_numpy(rows), values.device), values)
        here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        here.copy_(values, non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return cls(window, rows, here, copied)

    def finish(self) -> int:
        """Wait for the copy and put it into its window; the number of its rows."""
        if self.copied is not None:
            self.copied.synchronize()
        if self.copied is not None and len(self.rows) == self.window.rows:
            self.window.put_all(self.values.numpy())
        else:
            self.window.put(self.rows, self.values.numpy())
        return len(self.rows)


def no_progress(_rows: int) -> None:
    """Report to nobody."""


def stream(
    windows: Iterable[Sequence[str]],
    *,
    tokenizer: SentenceTokenizer | PromptTokenizer,
    pad_id: int,
    forward: Forward,
    device: torch.device,
    budget: TokenBudget,
    may_pad: bool = True,
    packs: bool = False,
    progress: Progress = no_progress,
    on_tokens: Progress = no_progress,
) -> Iterator[Array]:
    """Yield `forward` of each window's sentences, rows in the order of the sentences. No window may be empty.

    `on_tokens` is called with the number of tokens of each window.
    """
    unfinished: deque[_Window] = deque()
    transfers: deque[_Transfer] = deque()
    truncated = 0
    for tokens in ahead(tokenizer, windows):
        truncated += tokens.truncated
        on_tokens(len(tokens.numbers))
        window = _Window(len(tokens), len(tokens))
        unfinished.append(window)
        todo = deque(token_batches(tokens, budget=budget.tokens, slack=budget.slack, may_pad=may_pad, packs=packs))
        while todo:
            batch = todo.popleft()
            values = run_batch(batch, todo, pad_id=pad_id, forward=forward, device=device, budget=budget)
            if values is None:
                continue
            transfers.append(_Transfer.start(window, batch.rows, values))
            if len(transfers) >= _IN_FLIGHT:
                progress(transfers.popleft().finish())
        yield from _finished(unfinished)
    while transfers:
        progress(transfers.popleft().finish())
    if truncated:
        log.warning("%d sentences were longer than %d tokens and were cut there", truncated, tokenizer.max_length)
    yield from _finished(unfinished)


def windows_of(texts: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """Slices of the texts, small at first so that the model need not wait long for its first tokens."""
    start, size = 0, min(512, most)
    while start < len(texts):
        yield texts[start : start + size]
        start += size
        size = min(size + size // 2, most)


def window_rows(bytes_per_row: int) -> int:
    """How many rows make a window: the result of one must not take much memory."""
    return max(64, min(_MOST_ROWS, _WINDOW_BYTES // bytes_per_row))


def ahead(function: Callable[[S], R], items: Iterable[S]) -> Iterator[R]:
    """`map(function, items)`, computed two items ahead in a thread."""
    source = iter(items)
    with ThreadPoolExecutor(max_workers=1) as thread:
        waiting = deque(thread.submit(function, item) for item in islice(source, 2))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(thread.submit(function, item) for item in islice(source, 1))
            yield result


def run_batch(
    batch: Batch,
    todo: deque[Batch],
    *,
    pad_id: int,
    forward: Callable[..., R],
    device: torch.device,
    budget: TokenBudget,
) -> R | None:
    """The batch's result, or None after putting its halves back because it did not fit into memory."""
    if batch.size > budget.tokens and len(batch.rows) > 1:
        todo.extendleft(reversed(batch.split()))
        return None
    try:
        with torch.inference_mode(), nullcontext() if device.type == "cpu" else one_thread_each():
            inputs = [to_device(tensor, device) for tensor in batch.padded(pad_id)]
            with packed_batch(Packed.of(batch, inputs[0])) if batch.is_packed else nullcontext():
                return forward(*inputs)
    except (RuntimeError, MemoryError) as error:
        if not is_memory_shortage(error):
            raise
        if len(batch.rows) == 1:
            raise ModelError(
                f"Not enough memory on {device} for one sentence of {batch.size} tokens; lower max_length"
            ) from error
    budget.halve_below(batch.size)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    todo.appendleft(batch)
    return None


def _finished(windows: deque[_Window]) -> Iterator[Array]:
    while windows and not windows[0].left:
        array = windows.popleft().filled
        if array is not None:
            yield array
