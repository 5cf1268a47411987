"""Builds a shallower model from some of a model's blocks."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from layerwise.errors import ModelError


def model_with_blocks(model: nn.Module, blocks: Sequence[nn.Module], kept: Sequence[int]) -> nn.Module:
    """Build a model from copies of the blocks in `kept`, numbered from 1 and in rising order.

    Its config has the new number of blocks, so that the model survives saving and loading.
    """
    wrong = [number for number in kept if not 1 <= number <= len(blocks)]
    if wrong or not kept or list(kept) != sorted(set(kept)):
        raise ModelError(
            f"blocks {', '.join(map(str, kept)) or 'none'} of {type(model).__name__}: give different ones from 1 to "
            f"{len(blocks)}, in rising order"
        )
    places = [name for name, module in model.named_modules() if _is_list_of(module, blocks)]
    if not places:
        raise ModelError(f"{type(model).__name__}: its blocks are in no list, so none can be left out")
    state = _renumbered(model, f"{places[0]}.", {number - 1: place for place, number in enumerate(kept)})
    config = copy.deepcopy(model.config)
    keep_in_config(config, kept, len(blocks))
    shorter = type(model)(config)
    try:
        shorter.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split(":", 1)[-1].split())[:120]
        raise ModelError(
            f"{type(model).__name__} cannot be made of the blocks {', '.join(map(str, kept))}: one of them holds other "
            f"weights than its new place ({reason}); keep block 1, or other blocks"
        ) from error
    first = next(model.parameters())
    return shorter.to(device=first.device, dtype=first.dtype).train(model.training)


def keep_in_config(config: Any, kept: Sequence[int], depth: int) -> None:
    """Change a config of `depth` blocks to one of the `kept` blocks, numbered from 1."""
    for name, value in config.to_dict().items():
        if isinstance(value, list) and len(value) == depth:  # one value a block, e.g. `layer_types`
            setattr(config, name, [value[number - 1] for number in kept])
    config.num_hidden_layers = len(kept)


def even_blocks(count: int, depth: int) -> tuple[int, ...]:
    """Choose `count` of the blocks 1 to `depth` at even distances, including the first and the last.

    >>> even_blocks(4, 12)
    (1, 5, 8, 12)
    """
    if not 1 <= count <= depth:
        raise ModelError(f"{count} blocks of {depth}; give 1 to {depth}")
    return tuple(round(1 + place * (depth - 1) / max(1, count - 1)) for place in range(count))


def _is_list_of(module: nn.Module, blocks: Sequence[nn.Module]) -> bool:
    return isinstance(module, nn.ModuleList) and list(module) == list(blocks)


def _renumbered(model: nn.Module, prefix: str, places: dict[int, int]) -> dict[str, torch.Tensor]:
    """Return the model's state dict with blocks renumbered; blocks that are not in `places` are dropped."""
    state = {}
    for name, tensor in model.state_dict().items():
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            if int(number) not in places:
                continue
            name = f"{prefix}{places[int(number)]}.{rest}"
        state[name] = tensor
    return state
