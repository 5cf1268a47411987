"""Silence for loggers: those of transformers, and ours where the caller says better what they warn of."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


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
