"""Ends a worker process when its parent exits, for whatever reason."""

import multiprocessing as mp
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>


def end_with_parent() -> None:
    """End this process as soon as its parent exits: by the kernel on Linux, elsewhere by a closed pipe."""
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
