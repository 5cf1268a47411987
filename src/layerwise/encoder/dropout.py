"""An encoder with dropout on: two passes over the same sentence give two vectors, alike but not equal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    """The highest rate of its dropout modules, or of attention that holds its rate as a plain number."""
    rates = [float(module.p) for module in model.modules() if isinstance(module, nn.Dropout)]
    return max([*rates, *(float(module.attention_dropout) for module in plain_dropout(model))], default=0.0)


def plain_dropout(model: nn.Module) -> list[Any]:
    """The attention modules of Llama and its like, which have their rate as a number (`attention_dropout`)."""
    config = getattr(model, "config", None)
    if not hasattr(config, "num_key_value_heads"):  # encoders such as ModernBERT keep what they are configured with
        return []
    return [module for module in model.modules() if isinstance(getattr(module, "attention_dropout", None), float | int)]
