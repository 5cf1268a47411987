"""Runs tasks in one thread per core, with torch's own threads disabled."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Lock
from typing import TypeVar

import torch

from layerwise.cores import available_cores

T = TypeVar("T")
_cores: ContextVar[int | None] = ContextVar("cores", default=None)
_STARTED_IN = os.getpid()
_MOST_THREADS = 8  # beyond which they wait for Python's lock more than they work


def share(tasks: Iterable[T], work: Callable[[T], None], *, threads: int | None = None) -> None:
    """Call `work` with every task from several threads, consuming a task only when a thread is free.

    An error or an interrupt stops all of them after the task that they are at.
    """
    waiting, lock, stop = iter(tasks), Lock(), Event()
    nothing = object()

    def worker() -> None:
        while not stop.is_set():
            with lock:
                task = next(waiting, nothing)
            if task is nothing:
                return
            try:
                work(task)  # type: ignore[arg-type]
            except BaseException:
                stop.set()
                raise

    before = _Running.threads if _Running.running else torch.get_num_threads()
    count = threads or max(1, min(before, available_cores(), _MOST_THREADS))
    with one_thread_each(), ThreadPoolExecutor(count) as pool:
        try:
            for done in [pool.submit(worker) for _ in range(count)]:
                done.result()
        finally:
            stop.set()


def survive_fork() -> None:
    """Use one thread in forked processes, where OpenMP would wait forever for threads that were not forked.

    Without it every product of torch hangs there, once the first process has used its threads.
    """
    if os.getpid() != _STARTED_IN and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment] # it counts threads by itself


@contextmanager
def small_products() -> Iterator[None]:
    """Disable oneDNN inside the context, as on ARM its overhead exceeds the time of small matrix products."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@contextmanager
def within_cores(count: int) -> Iterator[None]:
    """Limit the cores of libraries with their own threads, such as ONNX Runtime, for this thread."""
    before = _cores.set(count)
    try:
        yield
    finally:
        _cores.reset(before)


def cores_here() -> int:
    """Return the number of cores this thread may use; by default as many as torch uses."""
    return _cores.get() or torch.get_num_threads()


class _Running:
    """The number of active single-thread contexts, and torch's number of threads before the first."""

    lock = Lock()
    running = 0
    threads = 1


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Set torch to one thread inside the context; restore its threads when the last context exits."""
    with _Running.lock:
        if not _Running.running:
            _Running.threads = torch.get_num_threads()
        _Running.running += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Running.lock:
            _Running.running -= 1
            if not _Running.running:
                torch.set_num_threads(_Running.threads)
