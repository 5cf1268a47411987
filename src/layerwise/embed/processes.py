"""The engine of several processes on this machine.

The main process reads; the others embed and write, each with the model in its memory. They are spawned, not forked
(CUDA and tokenizer threads do not survive a fork). A worker whose parent was killed exits too (worker.py); the next run
writes its missing shards.
"""

import multiprocessing as mp
import pickle
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

from layerwise.cores import available_cores
from layerwise.embed.engine import Embedded, Report, Work, WorkerJob, Written
from layerwise.embed.job import Chunk
from layerwise.embed.worker import run_worker
from layerwise.errors import LayerwiseError, ModelError

_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Processes:
    """The engine of worker processes that share a queue of chunks; devices are assigned in turn."""

    count: int
    devices: Sequence[str] = ()
    embeds_here = False

    @property
    def device(self) -> str | None:
        """The device of the first worker."""
        return self.devices[0] if self.devices else None

    def embed(self, work: Work) -> None:
        """Start the workers, feed them, and stop them."""
        spawn = mp.get_context("spawn")
        tasks: Any = spawn.Queue(maxsize=2 * self.count)
        reports: Any = spawn.Queue()
        workers = [self._worker(spawn, number, work, tasks, reports) for number in range(self.count)]
        for worker in workers:
            worker.start()
        pending: dict[int, Chunk] = {}
        handle_reports = partial(_handle_reports, reports, pending, work)
        try:
            for task in _with_ends(work.todo, self.count):
                if task is not None:
                    pending[task.number] = task
                _put(tasks, task, workers, partial(handle_reports, wait=0.0))
            while pending:
                _check_alive(workers)
                handle_reports(wait=_POLL_SECONDS)
            for worker in workers:
                worker.join()
        finally:
            tasks.cancel_join_thread()  # unread chunks must not keep this process from exiting
            for worker in workers:
                worker.terminate()
                worker.join()

    def _worker(self, spawn: Any, number: int, work: Work, tasks: Any, reports: Any) -> BaseProcess:
        device = self.devices[number % len(self.devices)] if self.devices else None
        threads = max(1, available_cores() // self.count)
        worker_job = WorkerJob(work.choice, work.job, work.folder, device, threads, informs=number == 0)
        process: BaseProcess = spawn.Process(
            target=run_worker, args=(pickle.dumps((_run, (worker_job,))), tasks, reports), daemon=True
        )
        return process


def _run(worker_job: WorkerJob, tasks: Any, reports: Any) -> None:
    """The main function of a worker process."""
    worker_job.run(tasks, reports.put)


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


def _handle_reports(reports: Any, pending: dict[int, Chunk], work: Work, *, wait: float) -> None:
    """Handle all available reports, waiting up to `wait` seconds for the first."""
    while pending:
        try:
            report: Report = reports.get(timeout=wait) if wait else reports.get_nowait()
        except queue.Empty:
            return
        wait = 0.0
        if isinstance(report, LayerwiseError):
            raise report
        if isinstance(report, Embedded):
            work.progress(report.rows)
        elif isinstance(report, Written):
            work.on_tokens(report.tokens)
            work.written(pending.pop(report.number))


def _check_alive(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        if worker.exitcode not in (None, 0):
            raise ModelError(
                f"An embedding process ended with code {worker.exitcode} (killed, or out of memory?); "
                f"run the same command again to resume, perhaps with fewer processes"
            )
