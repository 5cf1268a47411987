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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Condition, Thread

from torch import Tensor

from layerwise.encoder import Batch, LayerEncoder, Tokens, run_batch, token_batches
from layerwise.errors import LayerwiseError
from layerwise.serve.batch_plan import BatchPlan, Needs
from layerwise.serve.jobs import Job, Piece, Share
from layerwise.threads import one_thread_each, within_cores

log = logging.getLogger(__name__)
_WINDOW = 4  # batches that are sorted by length together
_KEPT = 0.9  # of the counts of speed, with each window
_RECENT = 0.05  # seconds after a batch in which those that it answered are likely to ask again


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
        workers: Threads; on a CPU they share the cores, so that none waits for another inside an operation.
        cores: Of this process. Where nothing else waits or runs, a text has all of them, if the model runs by ONNX.
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
        cores: int = 1,
        fill_seconds: float = 0.002,
        max_queue_tokens: int = 131_072,
        max_seconds: float = math.inf,
        on_batch: Callable[[int, int, int, float], None] | None = None,
    ) -> None:
        self.encoder = encoder
        self.failure = ""
        self._graphs = graphs
        self._cores = cores
        self._fill_seconds = fill_seconds
        self._max_queue_tokens = max_queue_tokens
        self._max_seconds = max_seconds
        self._on_batch = on_batch
        self._queue: deque[Share] = deque()
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
            self._queue.extend(Share(job, number) for number in range(len(job.passes)))
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
            while (window := self._next_window()) is not None:
                pieces, is_alone = window
                with within_cores(self._cores if is_alone else max(1, self._cores // len(self._threads))):
                    self._run_all(pieces)
                self._note(pieces)

    def _threads_of_torch(self) -> AbstractContextManager[None]:
        return one_thread_each() if self.encoder.device.type == "cpu" else nullcontext()

    def _note(self, pieces: Sequence[Piece]) -> None:
        """Count what was done since anybody was last done, or since the first began: the speed of all workers."""
        size, now = sum(piece.size for piece in pieces), time.perf_counter()
        with self._changed:
            tokens, seconds = self._busy
            self._busy = (_KEPT * tokens + size, _KEPT * seconds + now - self._counted)
            self._counted = now
            self._last = (now, len({id(piece.job) for piece in pieces}))
            self._idle += 1
            self._running -= size

    def _next_window(self) -> tuple[list[Piece], bool] | None:
        """Wait for texts, and a moment for more of them while several clients are served; None at the end.

        And whether they are all that there is to do.
        """
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
            is_first = self._idle == len(self._threads)
            if is_first:
                self._counted = time.perf_counter()
            self._idle -= 1
            self._running += sum(piece.size for piece in pieces)
            if self._queue:
                self._changed.notify()
            return pieces, is_first and not self._queue

    def _take(self) -> list[Piece]:
        """The texts of the next batches, a batch's worth of each request in turn; those of one prompt."""
        budget = self.encoder.budget.tokens
        room = min(_WINDOW * budget, max(1, math.ceil(self._waiting / max(1, self._idle))))
        pieces: list[Piece] = []
        others: list[Share] = []
        again: deque[Share] = deque()
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

    def _run_all(self, pieces: list[Piece]) -> None:
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

    def _run_alone(self, pieces: list[Piece], error: Exception) -> None:
        if len({id(piece.job) for piece in pieces}) == 1:
            pieces[0].job.fail(error)
            return
        for piece in pieces:
            if not piece.job.future.done():
                self._run_all([piece])

    def _run(self, pieces: list[Piece]) -> None:
        """Cut the texts into batches of similar length and run them; each request is finished by its last batch."""
        encoder, budget = self.encoder, self.encoder.budget
        rows = [(piece, row) for piece in pieces for row in piece.rows]
        cut = token_batches(
            Tokens.joined([piece.tokens for piece in pieces]),
            budget=budget.tokens,
            overhead=budget.overhead,
            may_pad=encoder.reader.ignores_padding,
            packs=encoder.reader.packs,
        )
        todo = deque(cut)
        running: deque[tuple[BatchPlan, list[Tensor]]] = deque()
        at_once = 1 if encoder.device.type == "cpu" else 2  # a GPU runs a batch while the one before is copied back
        while todo:
            batch, start = todo.popleft(), time.perf_counter()
            plan = BatchPlan(encoder, [rows[row] for row in batch.rows], self._graphs)
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
                plan, values = running.popleft()
                plan.finish(values)
            self._report(batch, time.perf_counter() - start)
        for plan, values in running:
            plan.finish(values)

    def _report(self, batch: Batch, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(len(batch.rows), int(batch.lengths.sum()), batch.size, seconds)
