"""Several processes for one job: this one reads, the others embed and write, each with the model in its memory.

Processes are spawned, not forked (CUDA and tokenizer threads do not survive a fork). A worker whose parent was killed
ends itself; shards that it had begun are not there, so the next run makes them.
"""

import logging
import multiprocessing as mp
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from layerwise.embed.job import Chunk, EmbedJob, ModelChoice
from layerwise.embed.run import embed_chunks
from layerwise.embed.shards import ShardFolder
from layerwise.errors import LayerwiseError, ModelError

_POLL_SECONDS = 1.0


def deal_out(
    todo: Iterable[Chunk],
    choice: ModelChoice,
    job: EmbedJob,
    folder: Path,
    processes: int,
    devices: Sequence[str],
    written: Callable[[Chunk], None],
) -> None:
    """Give chunks to workers as they become free, and pass on what they report."""
    spawn = mp.get_context("spawn")
    tasks: Any = spawn.Queue(maxsize=2 * processes)
    reports: Any = spawn.Queue()
    threads = max(1, (os.cpu_count() or 1) // processes)
    workers: list[BaseProcess] = []
    for number in range(processes):
        device = devices[number % len(devices)] if devices else None
        arguments = (choice, job, folder, device, threads, tasks, reports)
        workers.append(spawn.Process(target=_work, args=arguments, daemon=True))
    for worker in workers:
        worker.start()
    pending: dict[int, Chunk] = {}
    try:
        for task in _with_ends(todo, processes):
            if task is not None:
                pending[task.number] = task
            _put(tasks, task, workers, lambda: _take(reports, pending, written, wait=0.0))
        while pending:
            _check_alive(workers)
            _take(reports, pending, written, wait=_POLL_SECONDS)
        for worker in workers:
            worker.join()
    finally:
        tasks.cancel_join_thread()  # chunks that nobody will read must not keep this process from ending
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


def _take(reports: Any, pending: dict[int, Chunk], written: Callable[[Chunk], None], *, wait: float) -> None:
    """Handle every report that is there; wait for the first if asked."""
    while pending:
        try:
            report = reports.get(timeout=wait) if wait else reports.get_nowait()
        except queue.Empty:
            return
        if isinstance(report, LayerwiseError):
            raise report
        written(pending.pop(report))
        wait = 0.0


def _check_alive(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        if worker.exitcode not in (None, 0):
            raise ModelError(
                f"An embedding process ended with code {worker.exitcode} (killed, or out of memory?); what was written "
                f"is kept: run the same command again, perhaps with fewer processes"
            )


def _work(
    choice: ModelChoice,
    job: EmbedJob,
    folder: Path,
    device: str | None,
    threads: int,
    tasks: Any,
    reports: Any,
) -> None:
    """A worker's life."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one answers for all
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        model = choice.load(device)
        mine: Iterator[Chunk] = iter(tasks.get, None)
        embed_chunks(model, mine, job, ShardFolder(folder, job), lambda chunk: reports.put(chunk.number))
    except LayerwiseError as error:
        reports.put(LayerwiseError(str(error)))


def _die_with_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
