"""Silence scikit-learn's warnings of fits that do not converge, which mteb's settings cause on purpose."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_convergence_warnings() -> Iterator[None]:
    """Ignore scikit-learn's ConvergenceWarning in the block."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
