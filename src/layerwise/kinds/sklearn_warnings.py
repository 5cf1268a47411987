"""Quiet where scikit-learn would warn of a fit that ends early, as mteb's settings make it do on purpose."""

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
