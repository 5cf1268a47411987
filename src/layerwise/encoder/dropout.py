"""An encoder with dropout on: two passes over the same sentence give two vectors, alike but not equal."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from layerwise.errors import ModelError


@contextmanager
def dropout_on(model: nn.Module, seed: int) -> Iterator[None]:
    """Train mode with a seed; the mode and the random state of the caller are restored whatever happens."""
    if not dropout_rate(model):
        raise ModelError(
            f"{type(model).__name__} has no dropout: two passes would be equal; give pairs of text instead"
        )
    modes = {module: module.training for module in model.modules()}
    devices = [parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        model.train()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training


def dropout_rate(model: nn.Module) -> float:
    """The highest rate of its dropout modules."""
    return max((float(module.p) for module in model.modules() if isinstance(module, nn.Dropout)), default=0.0)
