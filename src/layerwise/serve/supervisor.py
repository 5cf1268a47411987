"""The parent of several processes that serve one socket. It loads no model: it starts, watches and stops them.

A worker that dies is replaced. The first SIGTERM or SIGINT makes all workers drain, the second kills them.
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
_EARLY_SECONDS = 10.0  # a worker that exits so soon after its start would fail again
_MAX_EARLY = 5  # consecutive early exits
_GRACE_SECONDS = 5.0  # after draining, before a worker is killed


def run_workers(
    settings: ServeSettings,
    *,
    on_start: Callable[[str, tuple[str, ...]], object] | None = None,
    prepare: Callable[[], object] | None = None,
) -> int:
    """Serve with `settings.workers` processes until a signal, and return the exit code.

    Args:
        settings: The server's settings.
        on_start: Called with the address and the names of models and indexes when all workers accept connections.
        prepare: Called first in every worker; a function that can be pickled.
    """
    with (
        bound_socket(settings) as listening,
        tempfile.TemporaryDirectory(prefix="layerwise-metrics-", ignore_cleanup_errors=True) as folder,
        _counted_signals() as signals,
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
    """The number of stop signals received, and a file descriptor that becomes readable on each."""

    reader: int
    count: int = 0

    def clear(self) -> None:
        """Drain the file descriptor."""
        with suppress(BlockingIOError):
            os.read(self.reader, 64)


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    reports: Connection
    started: float = field(default_factory=time.monotonic)
    is_ready: bool = False

    @property
    def exit_reason(self) -> str:
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
        self._early_exits = 0

    def start(self) -> tuple[str, ...] | None:
        """Start the workers, wait until all are ready and return the names they serve; None if a signal came first."""
        for number in range(self._settings.workers):
            self._add(quiet=number > 0)
        names: tuple[str, ...] = ()
        while not all(worker.is_ready for worker in self._workers):
            self._wait()
            if self._signals.count:
                return None
            for worker in self._workers:
                has_ended = worker.process.exitcode is not None  # read before the report, which is sent first
                report = self._report(worker)
                if isinstance(report, Ready):
                    names = report.names
                elif report is not None:
                    raise report
                elif has_ended:
                    raise ModelError(
                        f"a worker process ended {worker.exit_reason} before it was ready (out of memory?); start the "
                        f"server with fewer workers"
                    )
        return names

    def watch(self) -> int:
        """Replace workers that die until a signal comes, then drain them; return the exit code."""
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
        """Kill the remaining workers."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    def _drain(self) -> None:
        """Let every worker answer its accepted requests, until a second signal or the time limit."""
        for worker in self._workers:
            worker.process.terminate()
        end = time.monotonic() + self._settings.drain + _GRACE_SECONDS
        while (remaining := end - time.monotonic()) > 0 and self._signals.count == 1:
            self._workers = [worker for worker in self._workers if worker.process.exitcode is None]
            if not self._workers:
                return
            self._wait(remaining)
        log.warning("%d workers that have not ended are killed", len(self._workers))

    def _add(self, *, quiet: bool) -> None:
        spawn = mp.get_context("spawn")
        reports, reporting = spawn.Pipe(duplex=False)
        task = WorkerTask(self._settings, self._listening, self._folder, self._prepare, quiet)
        process = spawn.Process(target=run_worker, args=(task, reporting))
        process.start()
        reporting.close()
        self._workers.append(_Worker(process, reports))

    def _replace(self, worker: _Worker) -> bool:
        """Replace a worker that exited, unless workers keep exiting early."""
        self._workers.remove(worker)
        mark_process_dead(worker.process.pid, self._folder)  # type: ignore[no-untyped-call] # its gauges
        is_early = not worker.is_ready or time.monotonic() - worker.started < _EARLY_SECONDS
        self._early_exits = self._early_exits + 1 if is_early else 0
        if self._early_exits >= _MAX_EARLY:
            log.error("Workers end as soon as they are started, the last one %s; giving up", worker.exit_reason)
            return False
        log.warning("Worker %d ended %s; another one takes its place", worker.process.pid, worker.exit_reason)
        self._add(quiet=False)
        return True

    def _note(self, worker: _Worker) -> None:
        """Log the report of a worker that was started later."""
        report = self._report(worker)
        if isinstance(report, Ready):
            log.info("Worker %d is ready", worker.process.pid)
        elif report is not None:
            log.error("Worker %d cannot start: %s", worker.process.pid, report)

    def _report(self, worker: _Worker) -> Report | None:
        """Receive a worker's next report, if any; its pipe closes when the worker exits."""
        try:
            report: Report | None = worker.reports.recv() if worker.reports.poll() else None
        except EOFError:
            worker.process.join()
            return None
        if isinstance(report, Ready):
            worker.is_ready, worker.started = True, time.monotonic()
        return report

    def _wait(self, seconds: float | None = None) -> None:
        """Wait until a worker reports or exits, or a signal comes."""
        pipes = [worker.reports for worker in self._workers if not worker.is_ready]
        wait([self._signals.reader, *pipes, *(worker.process.sentinel for worker in self._workers)], seconds)
        self._signals.clear()


@contextmanager
def _counted_signals() -> Iterator[_Signals]:
    """Count SIGTERM and SIGINT instead of ending the process."""
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
