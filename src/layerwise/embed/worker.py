"""What a worker process runs first: it ends when its parent does, however that ended.

Nothing heavy is imported before that is settled: the imports take seconds, in which the parent may be killed.
"""

import multiprocessing as mp
import os
import pickle
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>


def run_worker(work: bytes, tasks: Any, reports: Any) -> None:
    """Call pickled (function, arguments) with the queues, until it ends or the parent process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent handles it
    end_with_parent()
    function, arguments = pickle.loads(work)  # noqa: S301 - from our parent
    function(*arguments, tasks, reports)


def end_with_parent() -> None:
    """End this process as soon as its parent is gone: by the kernel on Linux, elsewhere by a pipe that closes."""
    parent = mp.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # it ended before we asked
            os._exit(1)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
