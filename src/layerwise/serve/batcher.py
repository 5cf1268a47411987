"""Requests share passes: batches by padded tokens across requests, whatever layers each of them wants.

Worker threads take texts from one queue, first come first served. A request that takes more than a batch goes to the
end of the queue after each batch of its texts, so that a long one cannot hold up the short ones behind it; one that has
waited for long stays in front, so that the short ones cannot hold it up for ever. In a batch the model runs up to the
highest layer that any request needs, the union of their views is pooled, and each request gets its own mix of them.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Condition, Thread

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import Array, Batch, LayerEncoder, Prompt, Tokens, run_batch, token_batches
from layerwise.errors import LayerwiseError, ModelError
from layerwise.mixes import LayerWk
from layerwise.model import LayerModel
from layerwise.threads import one_thread_each

log = logging.getLogger(__name__)
_WINDOW = 4  # batches that are sorted by length together
Needs = tuple[list[int], list[str]]  # layers and token poolings
_KEPT = 0.9  # of the counts of speed, with each window
_RECENT = 0.05  # seconds after a batch in which those that it answered are likely to ask again


@dataclass(frozen=True)
class TextPass:
    """The texts of a request within one prompt, and the layers that are needed of each of its token poolings."""

    prompt: Prompt
    tokens: Tokens
    needs: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """The number of tokens."""
        return sum(map(len, self.tokens.ids))


@dataclass(eq=False)
class Job:
    """A request's texts on their way: `future` gets their embeddings (texts, width).

    A mix with views of several prompts has a pass for each of them.
    """

    model: LayerModel
    passes: tuple[TextPass, ...]
    future: Future[Array] = field(default_factory=Future)
    waiting: int = 0  # tokens in the queue
    submitted: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.passes[0].tokens.ids)
        self._missing = np.ones((len(self.passes), count), dtype=bool)
        self._embeddings: Array = np.empty((count, self.model.width), dtype=np.float32)
        mix = self.model.mix
        shape = (count, len(mix.poolings), len(mix.layers), self.model.encoder.width)
        self._views: Array | None = np.zeros(shape, dtype=np.float32) if len(self.passes) > 1 else None

    @property
    def tokens(self) -> int:
        """The tokens of all passes."""
        return sum(one.size for one in self.passes)

    def put(self, number: int, rows: NDArray[np.int64], values: Array) -> None:
        """Store what a pass gave for some texts, and finish when nothing is missing."""
        if self._views is None:
            self._embeddings[rows] = values
        else:
            mix, needs = self.model.mix, self.passes[number].needs
            for name in needs:
                place = mix.poolings.index(name)
                self._views[rows, place] = values[:, place]
        self._missing[number, rows] = False
        if not self._missing.any():
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Give the error to whoever waits."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _finish(self) -> None:
        if self._views is not None:
            with torch.inference_mode():
                views = torch.from_numpy(self._views).to(self.model.encoder.device)
                self._embeddings = _embedded(self.model, views).cpu().numpy()
        try:
            self.model.encoder.check_finite(self._embeddings)
        except ModelError as error:
            self.fail(error)
            return
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_result(self._embeddings)


@dataclass(eq=False)
class _Share:
    """What of a pass still waits: its rows from `start` on."""

    job: Job
    number: int
    start: int = 0

    @property
    def text_pass(self) -> TextPass:
        return self.job.passes[self.number]

    @property
    def group(self) -> tuple[Prompt, LayerModel | None]:
        """What can share a pass: texts within one prompt; SBERT-WK reads token states, so that it runs alone."""
        alone = self.job.model if isinstance(self.job.model.mix, LayerWk) else None
        return self.text_pass.prompt, alone

    @property
    def is_over(self) -> bool:
        return self.start >= len(self.text_pass.tokens.ids) or self.job.future.done()

    def take(self, room: int) -> "_Piece":
        """The next rows of at most `room` tokens, at least one row."""
        ids, stop, size = self.text_pass.tokens.ids, self.start, 0
        while stop < len(ids) and (stop == self.start or size + len(ids[stop]) <= room):
            size += len(ids[stop])
            stop += 1
        piece = _Piece(self.job, self.number, range(self.start, stop), size)
        self.start = stop
        self.job.waiting -= size
        return piece


@dataclass(frozen=True, eq=False)
class _Piece:
    """Some rows of a pass that run in the next batches, and how many tokens they have."""

    job: Job
    number: int
    rows: range
    size: int

    @property
    def text_pass(self) -> TextPass:
        return self.job.passes[self.number]


class QueueFull(Exception):  # noqa: N818 - a state that passes, not an error
    """More tokens wait than are allowed; `seconds` is how long they will take."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class Batcher:
    """The queue of one encoder and the threads that work on it.

    Args:
        encoder: Runs the batches.
        graphs: The choices of layers and token poolings that are read; without any, what each batch needs. ONNX has a
            graph for each choice, and takes the first that has all that a batch needs.
        workers: Threads; on a CPU each of them has one core, so that none waits for another inside an operation.
        fill_seconds: How long a batch that is not full waits for more, while others are being served.
        max_queue_tokens: `submit` refuses what would make more tokens wait.
        max_seconds: And what would have to wait for longer, by the speed so far.
        on_batch: Called with texts, tokens, padded tokens and seconds of every batch.
    """

    def __init__(
        self,
        encoder: LayerEncoder,
        *,
        graphs: Sequence[Needs] = (),
        workers: int = 1,
        fill_seconds: float = 0.002,
        max_queue_tokens: int = 131_072,
        max_seconds: float = math.inf,
        on_batch: Callable[[int, int, int, float], None] | None = None,
    ) -> None:
        self.encoder = encoder
        self.failure = ""
        self._graphs = graphs
        self._fill_seconds = fill_seconds
        self._max_queue_tokens = max_queue_tokens
        self._max_seconds = max_seconds
        self._on_batch = on_batch
        self._queue: deque[_Share] = deque()
        self._changed = Condition()
        self._waiting = 0
        self._idle = workers
        self._closed = False
        self._running = 0
        self._busy = (0.0, 0.0)  # tokens and seconds of late, older ones counting less
        self._counted = 0.0  # when they were last added to
        self._last = (0.0, 0)  # when the last window ended, and how many requests were in it
        encoder.reader  # noqa: B018 - found by one thread, before there are several
        self._threads = [Thread(target=self._work, name=f"batcher-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_tokens(self) -> int:
        """How many tokens wait."""
        return self._waiting

    def check_room(self, tokens: int) -> None:
        """Refuse what would make the queue too long."""
        done, seconds = self._busy
        backlog = self._waiting + self._running
        wait = (backlog + tokens) * seconds / done if backlog and done else 0.0
        if self._waiting + tokens > self._max_queue_tokens or wait > self._max_seconds:
            raise QueueFull(wait)

    def submit(self, job: Job) -> None:
        """Put a request's texts into the queue; cancelling its future takes them out again."""
        with self._changed:
            if self._closed:
                job.fail(RuntimeError("the batcher is closed"))
                return
            self.check_room(job.tokens)
            job.waiting, job.submitted = job.tokens, time.perf_counter()
            self._waiting += job.waiting
            self._queue.extend(_Share(job, number) for number in range(len(job.passes)))
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._forget(job))

    def close(self) -> None:
        """End the threads after the batch that they are at; what waits still is failed."""
        with self._changed:
            self._closed = True
            left = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for share in left:
            share.job.fail(RuntimeError("the batcher is closed"))
        for thread in self._threads:
            thread.join()

    def _forget(self, job: Job) -> None:
        """A request that was cancelled or failed waits no longer; its shares are skipped when their turn comes."""
        with self._changed:
            self._waiting -= job.waiting
            job.waiting = 0

    def _work(self) -> None:
        with self._threads_of_torch():
            while (pieces := self._next_window()) is not None:
                self._run_all(pieces)
                self._note(pieces)

    def _threads_of_torch(self) -> AbstractContextManager[None]:
        return one_thread_each() if self.encoder.device.type == "cpu" else nullcontext()

    def _note(self, pieces: Sequence[_Piece]) -> None:
        """Count what was done since anybody was last done, or since the first began: the speed of all workers."""
        size, now = sum(piece.size for piece in pieces), time.perf_counter()
        with self._changed:
            tokens, seconds = self._busy
            self._busy = (_KEPT * tokens + size, _KEPT * seconds + now - self._counted)
            self._counted = now
            self._last = (now, len({id(piece.job) for piece in pieces}))
            self._idle += 1
            self._running -= size

    def _next_window(self) -> list[_Piece] | None:
        """Wait for texts, and a moment for more of them while several clients are served; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            when, requests = self._last
            if requests > 1 and time.perf_counter() - when < _RECENT:
                budget = self.encoder.budget.tokens
                self._changed.wait_for(
                    lambda: self._closed or self._waiting >= budget or len(self._queue) >= requests, self._fill_seconds
                )
            while not (pieces := self._take()) and not self._closed:
                self._changed.wait_for(lambda: self._queue or self._closed)
            if not pieces:
                return None
            if self._idle == len(self._threads):
                self._counted = time.perf_counter()
            self._idle -= 1
            self._running += sum(piece.size for piece in pieces)
            if self._queue:
                self._changed.notify()
            return pieces

    def _take(self) -> list[_Piece]:
        """The texts of the next batches, a batch's worth of each request in turn; those of one prompt."""
        budget = self.encoder.budget.tokens
        room = min(_WINDOW * budget, max(1, math.ceil(self._waiting / max(1, self._idle))))
        pieces: list[_Piece] = []
        others: list[_Share] = []
        again: deque[_Share] = deque()
        late = time.perf_counter() - self._max_seconds / 2
        group = None
        while room > 0 and (self._queue or again):
            if not self._queue:
                self._queue, again = again, deque()
            share = self._queue.popleft()
            if share.is_over:
                continue
            if group is None:
                group = share.group
            if share.group != group:
                others.append(share)
                continue
            piece = share.take(room if share.job.submitted < late else min(room, budget))
            self._waiting -= piece.size
            room -= piece.size
            pieces.append(piece)
            if not share.is_over:
                again.append(share)
        in_front = [share for share in again if share.job.submitted < late]
        self._queue.extendleft(reversed(in_front + others))
        self._queue.extend(share for share in again if share.job.submitted >= late)
        return pieces

    def _run_all(self, pieces: list[_Piece]) -> None:
        """Run the pieces; where that fails, each request alone, so that one cannot fail the others."""
        try:
            self._run(pieces)
            self.failure = ""
        except LayerwiseError as error:
            self._run_alone(pieces, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must be told, and others served
            log.error("A batch failed: %s", type(error).__name__)
            self.failure = f"the last batch failed: {type(error).__name__}"
            self._run_alone(pieces, error)

    def _run_alone(self, pieces: list[_Piece], error: Exception) -> None:
        if len({id(piece.job) for piece in pieces}) == 1:
            pieces[0].job.fail(error)
            return
        for piece in pieces:
            if not piece.job.future.done():
                self._run_all([piece])

    def _run(self, pieces: list[_Piece]) -> None:
        """Cut the texts into batches of similar length and run them; each request is finished by its last batch."""
        encoder, budget = self.encoder, self.encoder.budget
        rows = [(piece, row) for piece in pieces for row in piece.rows]
        ids = [piece.text_pass.tokens.ids[row] for piece, row in rows]
        cut = token_batches(
            ids,
            budget=budget.tokens,
            slack=budget.slack,
            may_pad=encoder.reader.ignores_padding,
            places=_places(pieces),
        )
        todo = deque(cut)
        running: deque[tuple[_Plan, list[Tensor]]] = deque()
        at_once = 1 if encoder.device.type == "cpu" else 2  # a GPU runs a batch while the one before is copied back
        while todo:
            batch, start = todo.popleft(), time.perf_counter()
            plan = _Plan(encoder, [rows[row] for row in batch.rows], self._graphs)
            values = run_batch(
                batch,
                todo,
                pad_id=int(encoder.tokenizer.pad_token_id or 0),
                forward=plan.forward,
                device=encoder.device,
                budget=budget,
            )
            if values is None:
                continue
            running.append((plan, values))
            if len(running) == at_once:
                _finish(*running.popleft())
            self._report(batch, time.perf_counter() - start)
        for plan, values in running:
            _finish(plan, values)

    def _report(self, batch: Batch, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(len(batch.rows), int(batch.lengths.sum()), batch.size, seconds)


class _Plan:
    """What a batch has to give: the union of the views that its rows need, then each model's embeddings of its rows."""

    def __init__(
        self, encoder: LayerEncoder, members: Sequence[tuple[_Piece, int]], graphs: Sequence[Needs] = ()
    ) -> None:
        self._encoder = encoder
        self.members = members
        groups: dict[tuple[int, int], list[int]] = {}
        for place, (piece, _) in enumerate(members):
            groups.setdefault((id(piece.job.model), piece.number), []).append(place)
        self.groups = list(groups.values())
        layers: set[int] = set()
        poolings: dict[str, None] = {}
        for piece, _ in (members[group[0]] for group in self.groups):
            poolings |= dict.fromkeys(piece.text_pass.needs)
            layers.update(*piece.text_pass.needs.values())
        fitting = (graph for graph in graphs if set(graph[0]) >= layers and set(graph[1]) >= set(poolings))
        self._layers, self._poolings = next(fitting, (sorted(layers), list(poolings)))

    def forward(self, tokens: Tensor, mask: Tensor, places: Tensor | None = None) -> list[Tensor]:
        """For each group of rows, their embeddings; of a mix of several prompts, its views of this one."""
        job = self.members[0][0].job
        if isinstance(job.model.mix, LayerWk):
            return [job.model.forward(tokens, mask)]
        views = self._encoder.read(tokens, mask, self._layers, self._poolings, places).float()
        return [self._values(views, group) for group in self.groups]

    def _values(self, views: Tensor, group: list[int]) -> Tensor:
        piece, _ = self.members[group[0]]
        mix, needs = piece.job.model.mix, piece.text_pass.needs
        picked = views if len(group) == len(self.members) else views[group]
        if len(piece.job.passes) == 1:
            poolings = [self._poolings.index(name) for name in mix.poolings]
            layers = [self._layers.index(layer) for layer in mix.layers]
            return _embedded(piece.job.model, picked[:, poolings][:, :, layers])
        values = picked.new_zeros(len(group), len(mix.poolings), len(mix.layers), picked.shape[-1])
        for name, numbers in needs.items():
            from_layers = [self._layers.index(layer) for layer in numbers]
            to_layers = [mix.layers.index(layer) for layer in numbers]
            values[:, mix.poolings.index(name), to_layers] = picked[:, self._poolings.index(name), from_layers]
        return values


def _embedded(model: LayerModel, views: Tensor) -> Tensor:
    """(n, poolings, layers, width) -> (n, width of the model)"""
    return model.apply_heads(model.mix.combine_poolings(views))


def _finish(plan: _Plan, values: Sequence[Tensor]) -> None:
    """Hand the rows of each group to their jobs."""
    for group, tensor in zip(plan.groups, values, strict=True):
        array: Array = tensor.cpu().numpy()
        for piece, places, rows in _by_piece(plan.members, group):
            piece.job.put(piece.number, np.array(rows), array[places])


def _by_piece(members: Sequence[tuple[_Piece, int]], group: list[int]) -> Iterator[tuple[_Piece, list[int], list[int]]]:
    """The places of each piece's rows in a group, and the rows."""
    pieces: dict[int, tuple[_Piece, list[int], list[int]]] = {}
    for place, member in enumerate(group):
        piece, row = members[member]
        entry = pieces.setdefault(id(piece), (piece, [], []))
        entry[1].append(place)
        entry[2].append(row)
    yield from pieces.values()


def _places(pieces: Sequence[_Piece]) -> NDArray[np.int64] | None:
    """Which tokens are pooled, where the texts stand in a prompt."""
    parts = [piece.text_pass.tokens.places for piece in pieces]
    if parts[0] is None:
        return None
    return np.concatenate(
        [
            part[piece.rows.start : piece.rows.stop]
            for part, piece in zip(parts, pieces, strict=True)
            if part is not None
        ]
    )
