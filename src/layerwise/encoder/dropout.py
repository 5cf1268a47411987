"""Runs an encoder with dropout: two passes over the same sentence give two similar vectors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from layerwise.errors import ModelError


@contextmanager
def dropout_on(model: nn.Module, seed: int) -> Iterator[None]:
    """Set train mode and the seed; restore the modes of all modules and the random state on exit."""
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
    """Return the highest rate of the model's dropout modules and `attention_dropout` attributes."""
    rates = [float(module.p) for module in model.modules() if isinstance(module, nn.Dropout)]
    return max([*rates, *(float(module.attention_dropout) for module in plain_dropout(model))], default=0.0)


def plain_dropout(model: nn.Module) -> list[Any]:
    """Return the attention modules, as in Llama, that store their dropout rate as a number (`attention_dropout`)."""
    config = getattr(model, "config", None)
    if not hasattr(config, "num_key_value_heads"):  # encoders such as ModernBERT keep what they are configured with
        return []
    return [module for module in model.modules() if isinstance(getattr(module, "attention_dropout", None), float | int)]
