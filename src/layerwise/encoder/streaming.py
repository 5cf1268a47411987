"""The encoding loop: takes windows of sentences and yields one array per window, in order.

A thread tokenises ahead of the model. On a GPU, results are copied to the host while the next batches run, and torch
uses one CPU thread so that the tokenizer has the cores. When memory runs out, the token budget is halved.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder.arrays import Array
from layerwise.encoder.batches import Batch, token_batches
from layerwise.encoder.packing import Packed, packed_batch, to_device
from layerwise.encoder.tokens import Numbers, PromptTokenizer, SentenceTokenizer
from layerwise.errors import ModelError, is_memory_shortage
from layerwise.threads import one_thread_each, share, within_cores

Forward = Callable[..., Tensor]  # of ids, mask and, in a prompt, the places of the pooled tokens
Progress = Callable[[int], object]
S = TypeVar("S")
R = TypeVar("R")

log = logging.getLogger(__name__)
_IN_FLIGHT = 2  # windows whose copy from the GPU may be pending while the next ones run
_WINDOW_BYTES = 64 << 20
_MOST_ROWS = 16_384
_PART_CHARACTERS = 1 << 19  # about two batches of a GPU, at four characters a token


class TokenBudget:
    """The maximum number of tokens of a batch; halved permanently when memory does not suffice.

    `overhead` is the fixed cost of a batch, in tokens. Without it, batches are filled as far as possible without
    padding, which lets a GPU use its fastest attention kernel.
    """

    def __init__(self, tokens: int, *, overhead: int | None = None) -> None:
        self.tokens = tokens
        self.overhead = overhead

    def halve_below(self, size: int) -> None:
        """Reduce the budget below the size of a batch that did not fit."""
        self.tokens = max(1, min(self.tokens, size) // 2)
        log.warning("Out of memory: continuing with at most %d tokens a batch", self.tokens)


class _Window:
    """A window's result on the model's device, in the order of its sentences, and its copy on the host.

    The tensor is allocated when the first batch defines the shape of a row. A full window is copied from the GPU once,
    on a separate stream, so that computation continues. `tokens` and `truncated` count tokens and cut sentences.
    """

    def __init__(self, rows: int) -> None:
        self.tokens = self.truncated = 0
        self._rows = self._missing = rows
        self._values = torch.empty(0)
        self._copy_event: torch.cuda.Event | None = None

    def put(self, rows: Numbers, values: Tensor) -> None:
        """Store the results of some sentences; the last ones start the copy to the host."""
        if self._missing == self._rows:
            self._values = values.new_empty((self._rows, *values.shape[1:]))
        self._values.index_copy_(0, to_device(torch.from_numpy(rows), values.device), values)
        self._missing -= len(rows)
        if not self._missing and values.device.type == "cuda":
            self._values, self._copy_event = _copy_to_host(self._values)

    @property
    def is_full(self) -> bool:
        """Whether the results of all sentences are stored."""
        return not self._missing

    @property
    def is_ready(self) -> bool:
        """Whether `array` returns without waiting for the GPU."""
        return self.is_full and (self._copy_event is None or self._copy_event.query())  # type: ignore[no-untyped-call]

    def array(self) -> Array:
        """Return the whole result, waiting for its copy if need be."""
        if self._copy_event is not None:
            self._copy_event.synchronize()
        array: Array = self._values.cpu().numpy()
        return array


def _copy_to_host(values: Tensor) -> tuple[Tensor, torch.cuda.Event]:
    """Start an asynchronous copy of a GPU tensor to pinned memory; the event marks its completion."""
    copy_stream = torch.cuda.Stream(values.device)  # type: ignore[no-untyped-call]
    copy_stream.wait_stream(torch.cuda.current_stream(values.device))
    host_copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    with torch.cuda.stream(copy_stream):
        host_copy.copy_(values, non_blocking=True)
    values.record_stream(copy_stream)
    return host_copy, copy_stream.record_event()


def no_progress(_rows: int) -> None:
    """Ignore the progress."""


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
    workers: int = 1,
    progress: Progress = no_progress,
    on_tokens: Progress = no_progress,
) -> Iterator[Array]:
    """Yield the result of `forward` for each window, rows in the order of the sentences. No window may be empty.

    With several `workers`, as many batches run at the same time, on one core each, once a window has that many.
    `on_tokens` is called with the number of tokens of each window.
    """
    full: deque[_Window] = deque()
    max_pending = 0 if device.type == "cpu" else _IN_FLIGHT
    run = partial(run_batch, pad_id=pad_id, forward=forward, device=device, budget=budget)
    is_concurrent = False
    truncated = 0
    for part, tokens in ahead(lambda part: (part, tokenizer(part.texts)), _parts(windows, cut=packs)):
        window = part.window
        window.tokens += len(tokens.numbers)
        window.truncated += tokens.truncated
        pending_batches = deque(
            token_batches(tokens, budget=budget.tokens, overhead=budget.overhead, may_pad=may_pad, packs=packs)
        )
        is_concurrent = is_concurrent or 1 < workers <= len(pending_batches)
        _run_batches(pending_batches, run, partial(part.put, progress=progress), workers if is_concurrent else 1)
        if not window.is_full:
            continue
        truncated += window.truncated
        on_tokens(window.tokens)
        full.append(window)
        while full and (len(full) > max_pending or full[0].is_ready):
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
    """Sentences of a window, from row `start`, that are tokenised and batched together."""

    window: _Window
    start: int
    texts: Sequence[str]

    def put(self, batch: Batch, values: Tensor, progress: Progress) -> None:
        """Store a batch's results in the window."""
        self.window.put(batch.rows + self.start, values)
        progress(len(batch.rows))


def _parts(windows: Iterable[Sequence[str]], *, cut: bool) -> Iterator[_Part]:
    """Iterate over the windows; with `cut`, in even parts of about `_PART_CHARACTERS` characters.

    The GPU can then start while the rest of a window is tokenised. Packed batches are full whatever their lengths;
    padded ones are better cut from all of a window's lengths.
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
    """Slice the texts into windows, small ones first so that the model soon gets its first tokens."""
    start, size = 0, min(512, most)
    while start < len(texts):
        yield texts[start : start + size]
        start += size
        size = min(size + size // 2, most)


def window_rows(bytes_per_row: int) -> int:
    """Return the number of rows of a window, which bounds the memory of its result."""
    return max(64, min(_MOST_ROWS, _WINDOW_BYTES // bytes_per_row))


def ahead(function: Callable[[S], R], items: Iterable[S]) -> Iterator[R]:
    """Like `map(function, items)`, but computed two items ahead in a thread."""
    source = iter(items)
    with ThreadPoolExecutor(max_workers=1) as thread:
        futures = deque(thread.submit(function, item) for item in islice(source, 2))
        while futures:
            result = futures.popleft().result()
            futures.extend(thread.submit(function, item) for item in islice(source, 1))
            yield result


def _run_batches(
    pending: deque[Batch],
    run: Callable[[Batch, deque[Batch]], Tensor | None],
    put: Callable[[Batch, Tensor], None],
    workers: int,
) -> None:
    """Run all batches, by several threads with one core each or one after the other on all cores."""
    lock = Lock()

    def run_and_put(batch: Batch) -> None:
        with within_cores(1) if workers > 1 else nullcontext():
            values = run(batch, pending)
        if values is not None:
            with lock:
                put(batch, values)

    while pending:  # a batch that did not fit into memory was put back
        if workers > 1:
            share(_drained(pending), run_and_put, threads=workers)
        else:
            run_and_put(pending.popleft())


def _drained(pending: deque[Batch]) -> Iterator[Batch]:
    while pending:
        yield pending.popleft()


def run_batch(
    batch: Batch,
    todo: deque[Batch],
    *,
    pad_id: int,
    forward: Callable[..., R],
    device: torch.device,
    budget: TokenBudget,
) -> R | None:
    """Return the batch's result, or None after putting it back into `todo` because it did not fit into memory."""
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
