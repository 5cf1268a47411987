"""Reads every layer in one forward pass without storing token states.

Layer i (0 = embeddings) is the input of block i; the last layer is the model's `last_hidden_state`. Using the blocks'
inputs rather than their outputs makes one rule fit all models: DeBERTa's convolution after its first block, ALBERT's
one block that is called twelve times, ModernBERT's norm after the last block.

Layers are read by forward hooks, which are always removed; no method of the model is replaced.
"""

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from layerwise.errors import MixError, ModelError, is_memory_shortage

Pool = Callable[[Tensor], Any]
Inputs = Mapping[str, Tensor]
log = logging.getLogger(__name__)
_PASSING = (
    __name__,
    "transformers.utils.output_capturing",
)  # modules whose hooks belong to a forward pass, not to the model
_INSTALLED = "_output_capturing_hooks_installed"  # transformers sets it on a model with its hooks


class _Reached(Exception):  # noqa: N818 - a signal, not an error
    """Raised in a hook to stop the forward pass after the highest wanted layer."""


class LayerReader(Protocol):
    """Runs a model once and returns `pool(states)` for each wanted layer."""

    depth: int
    ignores_padding: bool
    packs: bool

    def read(self, inputs: Inputs, wanted: Collection[int], pool: Pool) -> dict[int, Any]:
        """Layer -> pooled states."""


class TappedLayers:
    """Reads layers through hooks on the blocks and stops after the highest wanted layer."""

    def __init__(self, model: nn.Module, blocks: Iterable[nn.Module], depth: int) -> None:
        self.model = model
        self.blocks = list(dict.fromkeys(blocks))
        self.depth = depth
        self.ignores_padding = True
        self.packs = False

    def read(self, inputs: Inputs, wanted: Collection[int], pool: Pool) -> dict[int, Any]:
        """Return pooled states by layer; pooling happens during the forward pass."""
        pooled: dict[int, Any] = {}
        top = max(wanted)
        calls = count()
        thread = get_ident()

        def before_block(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            # Ignore passes of other threads through the same model. One may run while torch has only half registered
            # this hook, and then without kwargs.
            if get_ident() != thread:
                return
            layer, states = next(calls), args[0] if args else (kwargs or {}).get("hidden_states")
            if layer in wanted and isinstance(states, Tensor):
                pooled[layer] = pool(states)
            if layer == top:
                raise _Reached

        with suppress(_Reached), _hooked(self.blocks, before_block):
            output = self.model(**inputs, output_hidden_states=False, return_dict=True)
            if self.depth in wanted:
                pooled[self.depth] = pool(output.last_hidden_state)
        return pooled


class UntappedLayers:
    """The fallback for models with unknown blocks: stores all hidden states, then pools them."""

    def __init__(self, model: nn.Module, depth: int) -> None:
        self.model = model
        self.depth = depth
        self.ignores_padding = True
        self.packs = False

    def read(self, inputs: Inputs, wanted: Collection[int], pool: Pool) -> dict[int, Any]:
        """Layer -> pooled states."""
        states = all_states(self.model, inputs)
        return {layer: pool(states[layer]) for layer in wanted}


def layer_reader(model: nn.Module) -> LayerReader:
    """Return tapped layers if they equal the model's hidden states, otherwise a reader that stores all states.

    Both are run on a few random tokens and compared, so that an unknown architecture costs memory but never gives
    wrong values. `ignores_padding` is False if a sentence's states change when it is padded.
    """
    probe = probe_inputs(model)
    with torch.inference_mode():
        states, alone = _probed(model, probe), _probed(model, {name: ids[1:, :4] for name, ids in probe.items()})
        _check_finite(model, states, probe["attention_mask"])
        reader = _fastest(model, probe, states)
    reader.ignores_padding = all(near(padded[1:, :4], unpadded) for padded, unpadded in zip(states, alone, strict=True))
    if not reader.ignores_padding:
        log.warning(
            "%s: its padding changes the numbers of a sentence, so that only sentences of equal length are batched; "
            "libraries that pad will differ",
            type(model).__name__,
        )
    return reader


def _fastest(model: nn.Module, probe: Inputs, states: Sequence[Tensor]) -> LayerReader:
    depth = len(states) - 1
    with torch.inference_mode():
        for blocks in block_lists(model, depth=depth):
            tapped = TappedLayers(model, blocks, depth=depth)
            read = tapped.read(probe, range(depth + 1), Tensor.clone)
            if len(read) == len(states) and all(_same(read[i], states[i]) for i in range(depth + 1)):
                return tapped
    log.warning(
        "%s: its blocks could not be found, so every layer's tokens are stored until they are pooled "
        "(right, but needs more memory and never stops early)",
        type(model).__name__,
    )
    return UntappedLayers(model, depth)


def all_states(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Return every layer's token states from the model's own outputs, (batch, tokens, width) each."""
    output = model(**inputs, output_hidden_states=True, return_dict=True)
    return [*output.hidden_states[:-1], output.last_hidden_state]


def block_lists(model: nn.Module, *, depth: int) -> Iterator[nn.ModuleList]:
    """Iterate over the module lists that may be the stack of layers, or ALBERT's groups of shared blocks."""
    groups = getattr(getattr(model, "config", None), "num_hidden_groups", None)
    for length in (depth, groups):
        for module in model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == length and length:
                yield module


def probe_inputs(model: nn.Module) -> dict[str, Tensor]:
    """Return inputs of two sequences of different length, with random tokens, to compare readers."""
    device = next(model.parameters()).device
    vocabulary = int(model.config.vocab_size)  # type: ignore[union-attr, arg-type]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(min(5, vocabulary - 1), vocabulary, (2, 7), generator=generator)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    return {"input_ids": tokens.to(device), "attention_mask": mask.to(device)}


def without_hooks(model: nn.Module) -> nn.Module:
    """Copy the model, sharing its tensors, without the hooks of running passes and those left by transformers.

    These hooks are nested functions, which cannot be pickled; transformers reinstalls its own when needed.
    """
    tensors = [*model.parameters(), *model.buffers()]
    bare = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    for module in bare.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for number in [number for number, hook in hooks.items() if hook.__module__ in _PASSING]:
                del hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
        if getattr(module, _INSTALLED, False):
            setattr(module, _INSTALLED, False)
    return bare


def make_recordable(model: nn.Module) -> None:
    """Let an unpickled model return its hidden states in this process.

    transformers registers what a class can record when it is instantiated, so one is created on the meta device.
    """
    with torch.device("meta"):
        type(model)(copy.deepcopy(model.config))


def resolve_layer(layer: int, depth: int) -> int:
    """Resolve a layer to 0 (embeddings) to `depth` (the last block); negative numbers count from the last."""
    if not -depth - 1 <= layer <= depth:
        raise MixError(f"There is no layer {layer}: {valid_range(depth)}")
    return layer if layer >= 0 else layer + depth + 1


def valid_range(depth: int) -> str:
    """Describe the existing layers, for an error message."""
    return f"this encoder has layers 0 to {depth}, or -{depth + 1} to -1 from the last"


@contextmanager
def _hooked(blocks: Sequence[nn.Module], hook: Callable[..., None]) -> Iterator[None]:
    handles = [block.register_forward_pre_hook(hook, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _probed(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Return all states; raise a one-line error for a model with other inputs or without such states."""
    try:
        states = all_states(model, inputs)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:
        if is_memory_shortage(error):
            raise ModelError(
                f"{type(model).__name__}: not enough memory for a few tokens; free some, or use a smaller model"
            ) from error
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise ModelError(
            f"{type(model).__name__} does not run as an encoder of sentences ({reason}): its config.json is of other "
            f"weights, or it takes other inputs than tokens and a mask"
        ) from error
    shapes = {tuple(layer.shape[:2]) for layer in states}
    if shapes != {tuple(inputs["input_ids"].shape)}:
        raise ModelError(
            f"{type(model).__name__} gives layers of other lengths than its tokens, so they cannot be pooled alike; "
            f"not supported"
        )
    return states


def _check_finite(model: nn.Module, states: Sequence[Tensor], mask: Tensor) -> None:
    """Raise if the last layer is not finite in float32; in half precision the probe alone may overflow."""
    last = states[-1][mask.bool()]
    if last.dtype == torch.float32 and not torch.isfinite(last).all():
        raise ModelError(
            f"{type(model).__name__}: the states of its last layer are NaN or infinite; its config.json or weights are "
            f"damaged, download them again"
        )


def _same(tapped: Tensor, expected: Tensor) -> bool:
    return tapped.shape == expected.shape and torch.allclose(tapped, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def near(padded: Tensor, alone: Tensor) -> bool:
    """Whether states are equal up to rounding; overflow is ignored here and reported when sentences are encoded."""
    tolerance = 1e-3 if alone.dtype in (torch.float32, torch.float64) else 5e-2
    difference = (padded - alone).abs().nan_to_num(0.0).max().item()
    return difference <= tolerance * max(1.0, alone.abs().nan_to_num(0.0, 0.0, 0.0).max().item())
