"""Silence for a logger of ours, where the caller says better what it warns of."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def muted(name: str) -> Iterator[None]:
    """Without the warnings of a logger."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
