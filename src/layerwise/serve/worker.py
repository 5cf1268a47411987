"""One of several processes of a server: it loads the models and accepts from the socket that its parent opened.

Heavy imports come after the process is tied to its parent, and prometheus-client is imported after the shared metrics
folder is set.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

from layerwise.errors import LayerwiseError, is_memory_shortage
from layerwise.parent_process import end_with_parent
from layerwise.serve.settings import ServeSettings

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus-client


@dataclass(frozen=True)
class Ready:
    """A worker's report that it accepts connections, with the names of its models and indexes."""

    names: tuple[str, ...]


Report = Ready | Exception


@dataclass(frozen=True)
class WorkerTask:
    """The arguments of a worker.

    `prepare` is called first. A `quiet` worker logs no warnings while loading, as another one does.
    """

    settings: ServeSettings
    listening: socket.socket
    metrics_folder: str
    prepare: Callable[[], object] | None
    quiet: bool


def run_worker(task: WorkerTask, reports: Connection) -> None:
    """Load and serve until SIGTERM; report readiness, or the error that prevents it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent handles it
    end_with_parent()
    if task.prepare is not None:
        task.prepare()
    threads = task.settings.cores_of_worker
    os.environ[METRICS_FOLDER] = task.metrics_folder
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))  # used by tokenizers
    if task.quiet:
        logging.disable(logging.WARNING)
    try:
        _serve(task, threads, reports)
    except LayerwiseError as error:
        _give_up(reports, LayerwiseError(str(error)))
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        if is_memory_shortage(error):
            _give_up(reports, MemoryError())
        if not isinstance(error, OSError):
            raise
        _give_up(reports, OSError(error.errno, error.strerror or str(error), error.filename))


def _give_up(reports: Connection, error: Exception) -> NoReturn:
    reports.send(error)
    sys.exit(1)


def _serve(task: WorkerTask, threads: int, reports: Connection) -> None:
    import torch

    from layerwise.serve.app import create_app
    from layerwise.serve.load import load_served
    from layerwise.serve.server import serve_on

    torch.set_num_threads(min(threads, torch.get_num_threads()))
    served = load_served(task.settings)

    def on_ready() -> None:
        logging.disable(logging.NOTSET)
        reports.send(Ready((*served.models, *served.indexes)))

    serve_on(task.listening, create_app(served, task.settings), task.settings, on_ready=on_ready)
