"""Silence: of transformers, of our loggers where the caller says better what they warn of, and of bars in pipes."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def muted(name: str) -> Iterator[None]:
    """Without the warnings of a logger; "" is the root logger."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and load reports; what matters of them is checked by the caller."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def no_bars_in_pipes() -> Iterator[None]:
    """Progress bars of libraries that cannot be asked for silence are for terminals; elsewhere they are left out."""
    if sys.stderr.isatty():
        yield
        return
    with redirect_stderr(io.StringIO()):
        yield
