"""The loop of all encoding: windows of sentences in, one array for each window out, in order.

While the model works on some sentences, the next are tokenised in a thread. On a GPU, results are copied back while the
next batches run, and this machine's cores are left to the tokenizer. When memory runs short, the token budget is
halved.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder.arrays import Array
from layerwise.encoder.batches import Batch, token_batches
from layerwise.encoder.packing import Packed, packed_batch, to_device
from layerwise.encoder.tokens import Numbers, PromptTokenizer, SentenceTokenizer
from layerwise.errors import ModelError, is_memory_shortage
from layerwise.threads import one_thread_each

Forward = Callable[..., Tensor]  # of tokens and mask, and of the places of the tokens that are pooled in a prompt
Progress = Callable[[int], object]
S = TypeVar("S")
R = TypeVar("R")

log = logging.getLogger(__name__)
_IN_FLIGHT = 2  # windows that a GPU may still be copying back while it works on the next
_WINDOW_BYTES = 64 << 20
_MOST_ROWS = 16_384
_PART_CHARACTERS = 1 << 19  # two batches or so of a GPU, at four characters a token


class TokenBudget:
    """How many tokens a batch may hold; halved for good when memory does not suffice.

    `overhead` is what a batch costs besides its tokens, in tokens. Without it, batches are as full as they can be
    without padding, which lets a GPU take its fastest attention.
    """

    def __init__(self, tokens: int, *, overhead: int | None = None) -> None:
        self.tokens = tokens
        self.overhead = overhead

    def halve_below(self, size: int) -> None:
        """Make the budget smaller than a batch that did not fit."""
        self.tokens = max(1, min(self.tokens, size) // 2)
        log.warning("Out of memory: continuing with at most %d tokens a batch", self.tokens)


class _Window:
    """A window's result as it fills where the model is, in the order of its sentences, and its copy here.

    The tensor is made when the first batch tells the shape of a row. A GPU copies it back once, when it is full, and
    goes on meanwhile: the copy has a stream of its own. `tokens` and `truncated` count those of its sentences.
    """

    def __init__(self, rows: int) -> None:
        self.tokens = self.truncated = 0
        self._rows = self._left = rows
        self._values = torch.empty(0)
        self._copied: torch.cuda.Event | None = None

    def put(self, rows: Numbers, values: Tensor) -> None:
        """The results of some sentences; after the last of them the copy begins."""
        if self._left == self._rows:
            self._values = values.new_empty((self._rows, *values.shape[1:]))
        self._values.index_copy_(0, to_device(torch.from_numpy(rows), values.device), values)
        self._left -= len(rows)
        if not self._left and values.device.type == "cuda":
            self._values, self._copied = _copy_back(self._values)

    @property
    def is_full(self) -> bool:
        """Whether the results of all its sentences are put in."""
        return not self._left

    @property
    def is_here(self) -> bool:
        """Whether nobody waits who asks for the array."""
        return self.is_full and (self._copied is None or self._copied.query())  # type: ignore[no-untyped-call]

    def array(self) -> Array:
        """The whole result, when it is here."""
        if self._copied is not None:
            self._copied.synchronize()
        array: Array = self._values.cpu().numpy()
        return array


def _copy_back(values: Tensor) -> tuple[Tensor, torch.cuda.Event]:
    """What a GPU has, as it will be here once the event has come; the GPU goes on meanwhile."""
    beside = torch.cuda.Stream(values.device)  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.current_stream(values.device))
    here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    with torch.cuda.stream(beside):
        here.copy_(values, non_blocking=True)
    values.record_stream(beside)
    return here, beside.record_event()


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
    full: deque[_Window] = deque()
    may_wait = 0 if device.type == "cpu" else _IN_FLIGHT
    truncated = 0
    for part, tokens in ahead(lambda part: (part, tokenizer(part.texts)), _parts(windows, cut=packs)):
        window = part.window
        window.tokens += len(tokens.numbers)
        window.truncated += tokens.truncated
        todo = deque(
            token_batches(tokens, budget=budget.tokens, overhead=budget.overhead, may_pad=may_pad, packs=packs)
        )
        while todo:
            batch = todo.popleft()
            values = run_batch(batch, todo, pad_id=pad_id, forward=forward, device=device, budget=budget)
            if values is None:
                continue
            window.put(batch.rows + part.start, values)
            progress(len(batch.rows))
        if not window.is_full:
            continue
        truncated += window.truncated
        on_tokens(window.tokens)
        full.append(window)
        while full and (len(full) > may_wait or full[0].is_here):
            yield full.popleft().array()
    if truncated:
        log.warning(
            "%d text(s) were longer than %d tokens and were cut there; split long texts to embed all of them",
            truncated,
            tokenizer.max_length,
        )
    while full:
        yield full.popleft().array()


@dataclass(frozen=True)
class _Part:
    """Sentences of a window that are tokenised and cut into batches together, from its row `start` on."""

    window: _Window
    start: int
    texts: Sequence[str]


def _parts(windows: Iterable[Sequence[str]], *, cut: bool) -> Iterator[_Part]:
    """The windows one after the other; with `cut`, in even parts of about so many characters.

    A GPU can then begin while the rest of a window is tokenised. Its packed batches are full whatever is in them;
    others are better cut from all of a window's lengths.
    """
    for texts in windows:
        window, bounds = _Window(len(texts)), [0, len(texts)]
        if cut:
            ends = np.cumsum([len(text) for text in texts])
            parts = max(1, round(ends[-1] / _PART_CHARACTERS))
            inner = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts, side="left") + 1
            bounds = sorted({0, *inner.tolist(), len(texts)})
        yield from (_Part(window, start, texts[start:stop]) for start, stop in pairwise(bounds))


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
