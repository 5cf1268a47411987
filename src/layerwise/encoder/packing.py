"""Passes without padding: the tokens of a batch are concatenated and attend within their text only.

In half precision, a GPU has an attention kernel for sequences of variable length. Batches are then full whatever the
lengths, no mask is needed, and the host never waits for the GPU. Whether a model supports it is tested once on a few
tokens.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from threading import RLock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layerwise.encoder.batches import Batch
from layerwise.encoder.pooling import ViewPool
from layerwise.encoder.taps import Inputs, Pool, TappedLayers, near, probe_inputs

log = logging.getLogger(__name__)
_NAME = "layerwise_packed"
_LOCAL = ("sliding_window", "local_attention", "attention_chunk_size")  # settings of local attention


@dataclass(frozen=True)
class Packed:
    """A padded batch without its padding, on the model's device.

    Attributes:
        padded: The padded input ids, (batch, longest).
        tokens: The ids without padding, concatenated, (1, n).
        positions: Each token's position in its text, (1, n).
        bounds: Cumulative sequence lengths from 0, int32 (batch + 1,).
        places: Each token's index in the flattened padded batch, (n,).
    """

    padded: Tensor
    tokens: Tensor
    positions: Tensor
    bounds: Tensor
    places: Tensor

    @classmethod
    def of(cls, batch: Batch, padded: Tensor) -> "Packed":
        """Pack a batch whose padded ids are on the device already."""
        lengths, longest = batch.lengths, padded.shape[1]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
        places = positions + np.repeat(np.arange(0, padded.numel(), longest), lengths)
        arrays = batch.tokens[None], positions[None], bounds.astype(np.int32), places
        return cls(padded, *(to_device(torch.from_numpy(array), padded.device) for array in arrays))

    def restored(self, states: Tensor) -> Tensor:
        """Unpack token states (1, n, width) to (batch, longest, width), with zeros at padding."""
        restored = states.new_zeros(self.padded.numel(), states.shape[-1])
        restored[self.places] = states[0]
        return restored.view(*self.padded.shape, -1)

    def pooled(self, states: Tensor, pool: Pool) -> Any:
        """Apply `pool`, unpacking the states only if it does not support packed ones."""
        if isinstance(pool, ViewPool) and pool.takes_packed:
            return pool.of_packed(states[0], self.bounds)
        return pool(self.restored(states))


_current: ContextVar[Packed | None] = ContextVar("packed", default=None)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; the copy to a GPU is asynchronous."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@contextmanager
def packed_batch(packed: Packed) -> Iterator[None]:
    """Let readers that support packing run this batch without padding inside the context."""
    token = _current.set(packed)
    try:
        yield
    finally:
        _current.reset(token)


class PackedLayers(TappedLayers):
    """Reads layers as `TappedLayers` does, and packed batches without padding."""

    def __init__(self, tapped: TappedLayers, first_position: int) -> None:
        super().__init__(tapped.model, tapped.blocks, tapped.depth)
        self.packs = True
        self.first_position = first_position
        self._lock = RLock()  # a packed pass replaces the model's attention temporarily

    def read(self, inputs: Inputs, wanted: Collection[int], pool: Pool) -> dict[int, Any]:
        """Return pooled states by layer; pooling happens during the forward pass."""
        packed = _current.get()
        with self._lock:
            if packed is None or inputs["input_ids"] is not packed.padded or "position_ids" in inputs:
                return super().read(inputs, wanted, pool)
            tokens = {"input_ids": packed.tokens, "position_ids": packed.positions + self.first_position}
            with _packed_attention(self.model):
                return super().read(tokens, wanted, lambda states: packed.pooled(states, pool))


def packing_reader(tapped: TappedLayers) -> TappedLayers:
    """Return a packing reader if packed and padded tokens give equal states, otherwise `tapped` itself."""
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, _attend)
    config: Any = tapped.model.config
    if any(getattr(config, name, None) for name in _LOCAL) or len(set(getattr(config, "layer_types", None) or ())) > 1:
        return tapped
    probe, layers = probe_inputs(tapped.model), range(tapped.depth + 1)
    mask, padded = probe["attention_mask"].bool(), probe["input_ids"]
    lengths = mask.sum(dim=1).cpu().numpy()
    packed = Packed.of(Batch(lengths, lengths, padded[mask].cpu().numpy()), padded)
    with torch.inference_mode():
        expected = tapped.read(probe, layers, lambda states: states[mask])
        for first_position in dict.fromkeys((0, int(getattr(config, "pad_token_id", None) or 0) + 1)):
            reader = PackedLayers(tapped, first_position)
            try:
                with packed_batch(packed):
                    states_by_layer = reader.read({"input_ids": padded}, layers, lambda states: states[mask])
            except (RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:
                log.debug("%s: does not run on packed tokens: %s", type(tapped.model).__name__, error)
                return tapped
            if all(near(states_by_layer[layer], expected[layer]) for layer in layers):
                return reader
    return tapped


@contextmanager
def _packed_attention(model: nn.Module) -> Iterator[None]:
    config: Any = model.config
    previous = config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = previous


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function for transformers on (1, heads, n, width); tokens attend within their text only."""
    packed = _current.get()
    unknown = sorted(name for name in ("softcap", "s_aux", "sliding_window") if options.get(name))
    if packed is None or attention_mask is not None or dropout or unknown:
        raise ValueError(f"packed attention with {', '.join(unknown) or 'a mask or dropout'}")
    groups = query.shape[1] // key.shape[1]
    queries, keys, values = (
        states[0].transpose(0, 1) if states is query else states[0].repeat_interleave(groups, dim=0).transpose(0, 1)
        for states in (query, key, value)
    )
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    if queries.device.type != "cuda":
        return _by_text(queries, keys, values, packed.bounds.tolist(), scaling, causal)[None], None
    from torch.nn.attention.varlen import varlen_attn

    bounds, longest = packed.bounds, packed.padded.shape[1]
    window = (-1, 0) if causal else (-1, -1)
    attended: Tensor = varlen_attn(  # type: ignore[assignment] # a tuple only if auxiliary outputs are requested
        queries, keys, values, bounds, bounds, longest, longest, scale=scaling, window_size=window
    )
    return attended[None], None


def _by_text(
    queries: Tensor, keys: Tensor, values: Tensor, bounds: Sequence[int], scaling: float | None, causal: bool
) -> Tensor:
    """Compute the same attention text by text, where torch has no kernel for variable lengths."""
    parts = []
    for begin, end in pairwise(bounds):
        query, key, value = (states[begin:end].transpose(0, 1) for states in (queries, keys, values))
        attended = F.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=causal)
        parts.append(attended.transpose(0, 1))
    return torch.cat(parts)
