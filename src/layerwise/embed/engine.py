"""Embedding chunks on this machine: in this process, or in several.

Of several processes, this one reads and the others embed and write, each with the model in its memory. They are
spawned, not forked (CUDA and tokenizer threads do not survive a fork). A worker whose parent was killed ends too
(worker.py); its unfinished shards are not there, so the next run makes them.
"""

import logging
import multiprocessing as mp
import os
import pickle
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

from layerwise.embed.job import Chunk, EmbedJob, ModelChoice
from layerwise.embed.shards import ShardFolder
from layerwise.embed.worker import run_worker
from layerwise.encoder import Progress, no_progress
from layerwise.errors import OUT_OF_MEMORY, LayerwiseError, ModelError, is_memory_shortage
from layerwise.model import LayerModel
from layerwise.stores import Place

_WRITES_WAITING = 2
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Embedded:
    """A worker's report: rows and tokens that it has embedded and not yet written. A number instead is a shard's."""

    rows: int = 0
    tokens: int = 0


def embed_chunks(
    model: LayerModel,
    todo: Iterable[Chunk],
    job: EmbedJob,
    folder: ShardFolder,
    written: Callable[[Chunk], None],
    progress: Progress = no_progress,
    on_tokens: Progress = no_progress,
) -> None:
    """Embed chunks and write their shards, while the model works on the next. `written` is called for each.

    `progress` is called with the rows of each batch as they are embedded, `on_tokens` with the tokens of each chunk.
    """
    waiting: deque[Chunk] = deque()
    writes: deque[tuple[Chunk, Future[None]]] = deque()

    def windows() -> Iterator[list[str]]:
        for chunk in todo:
            waiting.append(chunk)
            yield chunk.texts

    def finish_writes(*, leave: int) -> None:
        while len(writes) > leave:
            chunk, write = writes.popleft()
            write.result()
            written(chunk)

    with ThreadPoolExecutor(max_workers=1) as writer:
        stream = model.stream(
            windows(),
            normalize=job.normalize,
            truncate_dim=job.truncate_dim,
            progress=progress,
            on_tokens=on_tokens,
            check_finite=not job.set_aside,
        )
        for embeddings in stream:
            chunk = waiting.popleft()
            writes.append((chunk, writer.submit(folder.write, chunk, embeddings)))
            finish_writes(leave=_WRITES_WAITING)
        finish_writes(leave=0)


def embed_in_processes(
    todo: Iterable[Chunk],
    choice: ModelChoice,
    job: EmbedJob,
    folder: Place,
    processes: int,
    devices: Sequence[str],
    written: Callable[[Chunk], None],
    progress: Progress = no_progress,
    on_tokens: Progress = no_progress,
) -> None:
    """Give chunks to worker processes as they become free; `written` is called here for each shard they write.

    `progress` is called with the rows that they have embedded, `on_tokens` with the tokens.
    """
    spawn = mp.get_context("spawn")
    tasks: Any = spawn.Queue(maxsize=2 * processes)
    reports: Any = spawn.Queue()
    threads = max(1, (os.cpu_count() or 1) // processes)
    workers: list[BaseProcess] = []
    for number in range(processes):
        device = devices[number % len(devices)] if devices else None
        work = pickle.dumps((_embed_tasks, (choice, job, folder, device, threads)))
        workers.append(spawn.Process(target=run_worker, args=(work, tasks, reports), daemon=True))
    for worker in workers:
        worker.start()
    pending: dict[int, Chunk] = {}
    take = partial(_take, reports, pending, written, progress, on_tokens)
    try:
        for task in _with_ends(todo, processes):
            if task is not None:
                pending[task.number] = task
            _put(tasks, task, workers, partial(take, wait=0.0))
        while pending:
            _check_alive(workers)
            take(wait=_POLL_SECONDS)
        for worker in workers:
            worker.join()
    finally:
        tasks.cancel_join_thread()  # unread chunks must not keep this process from ending
        for worker in workers:
            worker.terminate()
            worker.join()


def _with_ends(todo: Iterable[Chunk], processes: int) -> Iterator[Chunk | None]:
    yield from todo
    yield from [None] * processes


def _put(tasks: Any, task: Chunk | None, workers: Sequence[BaseProcess], meanwhile: Callable[[], None]) -> None:
    while True:
        meanwhile()
        _check_alive(workers)
        try:
            tasks.put(task, timeout=_POLL_SECONDS)
        except queue.Full:
            continue
        return


def _take(
    reports: Any,
    pending: dict[int, Chunk],
    written: Callable[[Chunk], None],
    progress: Progress,
    on_tokens: Progress,
    *,
    wait: float,
) -> None:
    """Handle every report that is there; wait for the first if asked."""
    while pending:
        try:
            report = reports.get(timeout=wait) if wait else reports.get_nowait()
        except queue.Empty:
            return
        if isinstance(report, LayerwiseError):
            raise report
        wait = 0.0
        if isinstance(report, Embedded):
            progress(report.rows)
            on_tokens(report.tokens)
        else:
            written(pending.pop(report))


def _check_alive(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        if worker.exitcode not in (None, 0):
            raise ModelError(
                f"An embedding process ended with code {worker.exitcode} (killed, or out of memory?); "
                f"run the same command again to resume, perhaps with fewer processes"
            )


def _embed_tasks(
    choice: ModelChoice,
    job: EmbedJob,
    folder: Place,
    device: str | None,
    threads: int,
    tasks: Any,
    reports: Any,
) -> None:
    """Load the model, then embed and write chunks until there are no more: what a worker process runs."""
    import torch

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    torch.set_num_threads(threads)
    try:
        model = choice.load(device)
        todo: Iterator[Chunk] = iter(tasks.get, None)
        embed_chunks(
            model,
            todo,
            job,
            ShardFolder(folder, job),
            lambda chunk: reports.put(chunk.number),
            lambda rows: reports.put(Embedded(rows)),
            lambda tokens: reports.put(Embedded(tokens=tokens)),
        )
    except LayerwiseError as error:
        reports.put(LayerwiseError(str(error)))
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        if not is_memory_shortage(error):
            raise
        reports.put(LayerwiseError(OUT_OF_MEMORY))
