"""The entry point of worker processes, which exit when their parent does, for whatever reason.

Heavy imports come after that is set up: they take seconds, in which the parent may be killed.
"""

import pickle
import signal
from typing import Any

from layerwise.parent_process import end_with_parent


def run_worker(work: bytes, tasks: Any, reports: Any) -> None:
    """Call a pickled (function, arguments) with the queues, until it returns or the parent process exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent handles it
    end_with_parent()
    function, arguments = pickle.loads(work)  # noqa: S301 - from our parent
    function(*arguments, tasks, reports)
