"""The cores of this machine, each with a thread of its own; torch's threads would only stand in their way."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

import torch

T = TypeVar("T")


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

    count = threads or max(1, min(torch.get_num_threads(), os.cpu_count() or 1))
    with _one_thread_each(), ThreadPoolExecutor(count) as pool:
        try:
            for done in [pool.submit(worker) for _ in range(count)]:
                done.result()
        finally:
            stop.set()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
