"""The parent of several processes that serve one socket. It loads no model: it starts them, watches them, ends them.

A worker that dies is replaced. A first SIGTERM or SIGINT makes every worker drain, a second one ends them at once.
"""

import logging
import multiprocessing as mp
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from prometheus_client.multiprocess import mark_process_dead

from layerwise.errors import ModelError
from layerwise.serve.listening import address_of, bound_socket
from layerwise.serve.settings import ServeSettings
from layerwise.serve.worker import Ready, Report, WorkerTask, run_worker

log = logging.getLogger(__name__)
_EARLY_SECONDS = 10.0  # a worker that ends so soon after its start would do so again
_MOST_EARLY = 5  # of them, one after the other
_GRACE_SECONDS = 5.0  # after the time to drain, before a worker is killed


def run_workers(
    settings: ServeSettings,
    *,
    on_start: Callable[[str, tuple[str, ...]], object] | None = None,
    prepare: Callable[[], object] | None = None,
) -> int:
    """Serve by `settings.workers` processes until a signal, and return the exit code.

    Args:
        settings: Of the server.
        on_start: Called with the address and the names of models and indexes when all workers accept connections.
        prepare: Called first in every worker; a function that can be pickled.
    """
    with (
        bound_socket(settings) as listening,
        tempfile.TemporaryDirectory(prefix="layerwise-metrics-", ignore_cleanup_errors=True) as folder,
        _noticed_signals() as signals,
    ):
        supervisor = _Supervisor(settings, listening, folder, prepare, signals)
        try:
            names = supervisor.start()
            if names is not None and on_start is not None:
                on_start(address_of(listening), names)
            return supervisor.watch()
        finally:
            supervisor.kill()


@dataclass
class _Signals:
    """How many signals to stop have come, and what becomes readable when one does."""

    reader: int
    count: int = 0

    def clear(self) -> None:
        """Make it unreadable until the next one."""
        with suppress(BlockingIOError):
            os.read(self.reader, 64)


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    reports: Connection
    began: float = field(default_factory=time.monotonic)
    is_ready: bool = False

    @property
    def how_it_ended(self) -> str:
        code = self.process.exitcode or 0
        return f"by signal {-code}" if code < 0 else f"with code {code}"


class _Supervisor:
    def __init__(
        self,
        settings: ServeSettings,
        listening: socket.socket,
        folder: str,
        prepare: Callable[[], object] | None,
        signals: _Signals,
    ) -> None:
        self._settings = settings
        self._listening = listening
        self._folder = folder
        self._prepare = prepare
        self._signals = signals
        self._workers: list[_Worker] = []
        self._early = 0

    def start(self) -> tuple[str, ...] | None:
        """Start the workers and wait until all are ready: the names that they serve; None where a signal came first."""
        for number in range(self._settings.workers):
            self._add(says_nothing=number > 0)
        names: tuple[str, ...] = ()
        while not all(worker.is_ready for worker in self._workers):
            self._wait()
            if self._signals.count:
                return None
            for worker in self._workers:
                has_ended = worker.process.exitcode is not None  # asked first: its last report may come before its end
                report = self._report(worker)
                if isinstance(report, Ready):
                    names = report.names
                elif report is not None:
                    raise report
                elif has_ended:
                    raise ModelError(
                        f"a worker process ended {worker.how_it_ended} before it was ready (out of memory?); start the "
                        f"server with fewer workers"
                    )
        return names

    def watch(self) -> int:
        """Replace workers that die until a signal comes, then let them drain; the exit code."""
        while not self._signals.count:
            for worker in [*self._workers]:
                has_ended = worker.process.exitcode is not None
                self._note(worker)
                if has_ended and not self._replace(worker):
                    return 1
            self._wait()
        self._drain()
        return 0

    def kill(self) -> None:
        """End the workers that are left."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    def _drain(self) -> None:
        """Every worker answers what it has accepted; a second signal, or the time, ends that."""
        for worker in self._workers:
            worker.process.terminate()
        end = time.monotonic() + self._settings.drain + _GRACE_SECONDS
        while (left := end - time.monotonic()) > 0 and self._signals.count == 1:
            self._workers = [worker for worker in self._workers if worker.process.exitcode is None]
            if not self._workers:
                return
            self._wait(left)
        log.warning("%d workers that have not ended are killed", len(self._workers))

    def _add(self, *, says_nothing: bool) -> None:
        spawn = mp.get_context("spawn")
        reports, reporting = spawn.Pipe(duplex=False)
        task = WorkerTask(self._settings, self._listening, self._folder, self._prepare, says_nothing)
        process = spawn.Process(target=run_worker, args=(task, reporting))
        process.start()
        reporting.close()
        self._workers.append(_Worker(process, reports))

    def _replace(self, worker: _Worker) -> bool:
        """Start a worker in the place of one that ended, unless that happens again and again."""
        self._workers.remove(worker)
        mark_process_dead(worker.process.pid, self._folder)  # type: ignore[no-untyped-call] # its gauges
        is_early = not worker.is_ready or time.monotonic() - worker.began < _EARLY_SECONDS
        self._early = self._early + 1 if is_early else 0
        if self._early >= _MOST_EARLY:
            log.error("Workers end as soon as they are started, the last one %s; giving up", worker.how_it_ended)
            return False
        log.warning("Worker %d ended %s; another one takes its place", worker.process.pid, worker.how_it_ended)
        self._add(says_nothing=False)
        return True

    def _note(self, worker: _Worker) -> None:
        """Read what a worker that was started later reports."""
        report = self._report(worker)
        if isinstance(report, Ready):
            log.info("Worker %d is ready", worker.process.pid)
        elif report is not None:
            log.error("Worker %d cannot start: %s", worker.process.pid, report)

    def _report(self, worker: _Worker) -> Report | None:
        """What a worker reported since the last time; its pipe ends when the worker does."""
        try:
            report: Report | None = worker.reports.recv() if worker.reports.poll() else None
        except EOFError:
            worker.process.join()
            return None
        if isinstance(report, Ready):
            worker.is_ready, worker.began = True, time.monotonic()
        return report

    def _wait(self, seconds: float | None = None) -> None:
        """Until a worker reports or ends, or a signal comes."""
        pipes = [worker.reports for worker in self._workers if not worker.is_ready]
        wait([self._signals.reader, *pipes, *(worker.process.sentinel for worker in self._workers)], seconds)
        self._signals.clear()


@contextmanager
def _noticed_signals() -> Iterator[_Signals]:
    """SIGTERM and SIGINT are counted instead of ending the process."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signals = _Signals(reader)

    def count(*_: object) -> None:
        signals.count += 1

    wakeup = signal.set_wakeup_fd(writer)
    handlers = {number: signal.signal(number, count) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(reader)
        os.close(writer)
