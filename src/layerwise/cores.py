"""The cores that this process may use; without torch, which the parent of a server's processes never loads."""

import os


def available_cores() -> int:
    """Those that Linux gives this process; elsewhere, all that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
