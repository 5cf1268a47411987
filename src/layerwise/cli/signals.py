"""Lets SIGTERM end a command like an error, so that no partial output is left."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AGAIN_SECONDS = 0.05


@contextmanager
def orderly_stop() -> Iterator[None]:
    """Let SIGTERM unwind the stack. A signal whose exception is swallowed in a `__del__` is sent again."""
    if threading.current_thread() is not threading.main_thread():  # only that one handles signals
        yield
        return
    handler, hook = signal.signal(signal.SIGTERM, _stop), sys.unraisablehook
    signals = {SystemExit: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}

    def send_again(unraisable: Any) -> None:
        swallowed = signals.get(unraisable.exc_type)
        if swallowed is None:
            hook(unraisable)
            return
        timer = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), swallowed))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, handler)


def _stop(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)
