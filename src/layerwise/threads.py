"""The cores of this machine, each with a thread of its own; torch's threads would only stand in their way."""

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
    """Call `work` with every task, from several threads, taking a task only when one is free.

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
    """One thread in a process that was forked from this one: OpenMP's threads are not forked, and would be waited for.

    Without it every product of torch hangs there, once the first process has used its threads.
    """
    if os.getpid() != _STARTED_IN and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment] # it counts threads by itself


@contextmanager
def small_products() -> Iterator[None]:
    """Matrix products inside are without oneDNN, which on ARM takes longer to begin than a small one takes."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@contextmanager
def within_cores(count: int) -> Iterator[None]:
    """What this thread does inside may use so many cores, if it has threads of its own, as ONNX Runtime has."""
    before = _cores.set(count)
    try:
        yield
    finally:
        _cores.reset(before)


def cores_here() -> int:
    """How many cores this thread may use; as many as torch, where nothing else was said."""
    return _cores.get() or torch.get_num_threads()


class _Running:
    """How many users of one thread run at the moment, and how many threads torch had before the first of them."""

    lock = Lock()
    running = 0
    threads = 1


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Torch works by one thread inside; when the last user leaves, it has its threads again."""
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
