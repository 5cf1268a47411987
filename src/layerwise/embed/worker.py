"""What a worker process runs first: it ends when its parent does, however that ended.

Nothing heavy is imported before that is settled: the imports take seconds, in which the parent may be killed.
"""

import pickle
import signal
from typing import Any

from layerwise.parent_process import end_with_parent


def run_worker(work: bytes, tasks: Any, reports: Any) -> None:
    """Call pickled (function, arguments) with the queues, until it ends or the parent process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent handles it
    end_with_parent()
    function, arguments = pickle.loads(work)  # noqa: S301 - from our parent
    function(*arguments, tasks, reports)
