"""Batches texts across requests by padded tokens, whatever layers each request needs.

Worker threads take texts from one queue, first come first served. A request larger than a batch returns to the end of
the queue after each batch of its texts, so that it does not delay shorter ones; a request that has waited long stays
in front, so that shorter ones do not delay it forever. For a batch, the model runs up to the highest layer that any
request needs, the union of the views is pooled, and each request gets its mix of them.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Condition, Thread, current_thread

from torch import Tensor

from layerwise.encoder import Batch, LayerEncoder, Tokens, run_batch, token_batches
from layerwise.errors import LayerwiseError
from layerwise.serve.batch_plan import BatchPlan, Covering, as_needed
from layerwise.serve.jobs import Job, Piece, Share
from layerwise.threads import one_thread_each, within_cores

log = logging.getLogger(__name__)
_WINDOW = 4  # batches that are sorted by length together
_DECAY = 0.9  # of the throughput counts, per window
_RECENT = 0.05  # seconds after a batch in which its clients are likely to send the next request


class QueueFull(Exception):  # noqa: N818 - a temporary state, not an error
    """The queue holds too many tokens; `seconds` is the estimated time to process them."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class Batcher:
    """The queue of one encoder and its worker threads.

    Args:
        encoder: Runs the batches.
        covering: Gives the layers and token poolings to read for those that a batch needs; by default the same. ONNX
            has a graph for each such set.
        workers: The number of threads; on a CPU they share the cores and run each operation on one thread.
        cores: The cores of this process. With ONNX, a text uses all of them if nothing else waits or runs.
        fill_seconds: How long a batch that is not full waits for more texts while other clients are being served.
        max_queue_tokens: The maximum number of tokens in the queue; `submit` raises `QueueFull` beyond it.
        max_seconds: The maximum waiting time, estimated from recent throughput; `submit` raises beyond it.
        on_batch: Called with texts, tokens, padded tokens and seconds of every batch.
    """

    def __init__(
        self,
        encoder: LayerEncoder,
        *,
        covering: Covering = as_needed,
        workers: int = 1,
        cores: int = 1,
        fill_seconds: float = 0.002,
        max_queue_tokens: int = 131_072,
        max_seconds: float = math.inf,
        on_batch: Callable[[int, int, int, float], None] | None = None,
    ) -> None:
        self.encoder = encoder
        self.failure = ""
        self._covering = covering
        self._cores = cores
        self._fill_seconds = fill_seconds
        self._max_queue_tokens = max_queue_tokens
        self._max_seconds = max_seconds
        self._on_batch = on_batch
        self._queue: deque[Share] = deque()
        self._tasks: deque[Callable[[], object]] = deque()
        self._changed = Condition()
        self._waiting = 0
        self._idle = workers
        self._closed = False
        self._running = 0
        self._busy = (0.0, 0.0)  # recent tokens and seconds, exponentially decayed
        self._counted = 0.0  # time of their last update
        self._last = (0.0, 0)  # end time and number of requests of the last window
        encoder.reader  # noqa: B018 - cached here, before the threads start
        self._threads = [Thread(target=self._work, name=f"batcher-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_tokens(self) -> int:
        """The number of tokens in the queue."""
        return self._waiting

    def check_room(self, tokens: int) -> None:
        """Raise `QueueFull` if the queue cannot take these tokens."""
        done, seconds = self._busy
        backlog = self._waiting + self._running
        wait = (backlog + tokens) * seconds / done if backlog and done else 0.0
        if self._waiting + tokens > self._max_queue_tokens or wait > self._max_seconds:
            raise QueueFull(wait)

    def offer(self, task: Callable[[], object]) -> bool:
        """Let a worker call `task`, which may submit a job, if all workers are idle; return whether one will.

        The worker then runs the job itself: a job from another thread would wait for a worker to wake up.
        """
        with self._changed:
            if self._closed or self._tasks or self._queue or self._idle < len(self._threads):
                return False
            self._tasks.append(task)
            self._changed.notify()
            return True

    def submit(self, job: Job) -> None:
        """Enqueue a request's texts; cancelling its future removes them."""
        with self._changed:
            if self._closed:
                job.fail(RuntimeError("the batcher is closed"))
                return
            self.check_room(job.tokens)
            job.waiting, job.submitted = job.tokens, time.perf_counter()
            self._waiting += job.waiting
            self._queue.extend(Share(job, number) for number in range(len(job.passes)))
            if current_thread() not in self._threads:
                self._changed.notify()
        job.future.add_done_callback(lambda _: self._forget(job))

    def close(self) -> None:
        """Stop the threads after their current batch and fail all waiting jobs."""
        with self._changed:
            self._closed = True
            remaining = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for share in remaining:
            share.job.fail(RuntimeError("the batcher is closed"))
        for thread in self._threads:
            thread.join()

    def _forget(self, job: Job) -> None:
        """Stop counting a cancelled or failed request as waiting; its shares are skipped when they are reached."""
        with self._changed:
            self._waiting -= job.waiting
            job.waiting = 0

    def _work(self) -> None:
        with self._threads_of_torch():
            while self._run_tasks():
                if (window := self._next_window()) is None:
                    continue
                pieces, is_alone = window
                with within_cores(self._cores if is_alone else max(1, self._cores // len(self._threads))):
                    self._run_all(pieces)
                self._note(pieces)

    def _threads_of_torch(self) -> AbstractContextManager[None]:
        return one_thread_each() if self.encoder.device.type == "cpu" else nullcontext()

    def _note(self, pieces: Sequence[Piece]) -> None:
        """Update the throughput of all workers: tokens, and seconds since the last update or the first start."""
        size, now = sum(piece.size for piece in pieces), time.perf_counter()
        with self._changed:
            tokens, seconds = self._busy
            self._busy = (_DECAY * tokens + size, _DECAY * seconds + now - self._counted)
            self._counted = now
            self._last = (now, len({id(piece.job) for piece in pieces}))
            self._idle += 1
            self._running -= size

    def _run_tasks(self) -> bool:
        """Wait for texts, and call what is offered until there are some; False when closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._tasks or self._closed)
                if not self._tasks:
                    return not self._closed
                task = self._tasks.popleft()
            try:
                task()
            except Exception as error:  # noqa: BLE001 - the thread must continue
                log.error("A task failed: %s", type(error).__name__)

    def _next_window(self) -> tuple[list[Piece], bool] | None:
        """Take texts, after waiting briefly for more if several clients are active; None if there are none any more.

        The bool tells whether these pieces are the only work.
        """
        with self._changed:
            last_end, requests = self._last
            if requests > 1 and time.perf_counter() - last_end < _RECENT:
                budget = self.encoder.budget.tokens
                self._changed.wait_for(
                    lambda: self._closed or self._tasks or self._waiting >= budget or len(self._queue) >= requests,
                    self._fill_seconds,
                )
            if not (pieces := self._take()):
                return None
            is_first = self._idle == len(self._threads)
            if is_first:
                self._counted = time.perf_counter()
            self._idle -= 1
            self._running += sum(piece.size for piece in pieces)
            if self._queue or self._tasks:
                self._changed.notify()
            return pieces, is_first and not self._queue

    def _take(self) -> list[Piece]:
        """Take the texts of the next batches, one batch from each request in turn, all of one prompt."""
        budget = self.encoder.budget.tokens
        room = min(_WINDOW * budget, max(1, math.ceil(self._waiting / max(1, self._idle))))
        pieces: list[Piece] = []
        others: list[Share] = []
        requeued: deque[Share] = deque()
        deadline = time.perf_counter() - self._max_seconds / 2
        group = None
        while room > 0 and (self._queue or requeued):
            if not self._queue:
                self._queue, requeued = requeued, deque()
            share = self._queue.popleft()
            if share.is_finished:
                continue
            if group is None:
                group = share.group
            if share.group != group:
                others.append(share)
                continue
            piece = share.take(room if share.job.submitted < deadline else min(room, budget))
            self._waiting -= piece.size
            room -= piece.size
            pieces.append(piece)
            if not share.is_finished:
                requeued.append(share)
        overdue = [share for share in requeued if share.job.submitted < deadline]
        self._queue.extendleft(reversed(overdue + others))
        self._queue.extend(share for share in requeued if share.job.submitted >= deadline)
        return pieces

    def _run_all(self, pieces: list[Piece]) -> None:
        """Run the pieces; if that fails, run each request alone, so that it does not fail the others."""
        try:
            self._run(pieces)
            self.failure = ""
        except LayerwiseError as error:
            self._run_alone(pieces, error)
        except Exception as error:  # noqa: BLE001 - waiting clients must get the error, and the thread must continue
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
        """Cut the texts into batches of similar length and run them; a request's last batch completes it."""
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
        max_running = 1 if encoder.device.type == "cpu" else 2  # a GPU runs a batch while the previous result is copied
        while todo:
            batch, start = todo.popleft(), time.perf_counter()
            plan = BatchPlan(encoder, [rows[row] for row in batch.rows], self._covering)
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
            if len(running) == max_running:
                plan, values = running.popleft()
                plan.finish(values)
            self._report(batch, time.perf_counter() - start)
        for plan, values in running:
            plan.finish(values)

    def _report(self, batch: Batch, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(len(batch.rows), int(batch.lengths.sum()), batch.size, seconds)
