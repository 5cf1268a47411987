"""Fewer blocks: when no layer above k is used, the blocks above k need not be saved, loaded or run."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from layerwise.encoder.taps import KeptLayers, block_lists, probe_inputs


def cut_to_fit(model: nn.Module, layers: Sequence[int], depth: int) -> tuple[nn.Module, int]:
    """The model with as few blocks as still give these layers unchanged, and their number.

    Most models need as many blocks as their highest layer. ModernBERT normalises behind its last block, so a layer
    below the top needs one block more than that. Every cut is tried on a few tokens before it is believed.
    """
    probe = probe_inputs(model)
    with torch.inference_mode():
        whole = KeptLayers(model, depth).read(probe, layers, Tensor.clone)
        for blocks in range(max(1, max(layers)), depth):
            cut = with_blocks(model, blocks, depth)
            output = cut(**probe, output_hidden_states=True, return_dict=True)
            if len(output.hidden_states) == blocks + 1 and all(
                torch.allclose(output.hidden_states[layer], whole[layer], rtol=1e-4, atol=1e-5) for layer in layers
            ):
                return cut, blocks
    return model, depth


def with_blocks(model: nn.Module, blocks: int, depth: int) -> nn.Module:
    """A copy of the model with the first `blocks` of its blocks, and a config that says so."""
    cut = copy.deepcopy(model)
    config = cut.config
    stack = next(block_lists(cut, depth=depth), None)
    if stack is not None and len(stack) == depth:
        del stack[blocks:]
    for name, value in config.to_dict().items():  # type: ignore[union-attr, operator]
        if isinstance(value, list) and len(value) == depth:  # one value a block, e.g. `layer_types`
            setattr(config, name, value[:blocks])
    config.num_hidden_layers = blocks  # type: ignore[union-attr]
    return cut
