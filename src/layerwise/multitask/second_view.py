"""The rate of a second dropout pass: other than the encoder's own, and put back whatever happens."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def dropout_set(model: nn.Module, rate: float | None) -> Iterator[None]:
    """Every dropout module at this rate while it lasts; None leaves them as they are.

    Only modules are set: attention that keeps its rate as a plain number (ModernBERT's) stays as it is.
    """
    modules = [module for module in model.modules() if isinstance(module, nn.Dropout)] if rate is not None else []
    before = [module.p for module in modules]
    try:
        for module in modules:
            module.p = rate or 0.0
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            module.p = own
