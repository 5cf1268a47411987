"""Silences transformers, scikit-learn, loggers whose warnings the caller handles, and progress bars in pipes."""

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def muted(name: str) -> Iterator[None]:
    """Suppress the warnings of a logger; "" is the root logger."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' progress bars and load reports, which the caller checks."""
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
    """Disable libraries' progress bars unless the output is a terminal."""
    if sys.stderr.isatty():
        yield
        return
    with redirect_stderr(io.StringIO()):
        yield


@contextmanager
def no_convergence_warnings() -> Iterator[None]:
    """Ignore scikit-learn's ConvergenceWarning: of settings that are mteb's, or a layer that is the same for all."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
