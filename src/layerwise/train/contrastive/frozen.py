"""The views of a frozen copy of the encoder before training, whose layers are positives.

They never change, so they are computed once per sentence before training, in large sorted batches, and looked up at
every step. If this is not possible (dropout in the copy, a streamed corpus, or not enough memory), a copy of the model
runs at every step.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Protocol

import torch
from torch import Tensor, nn

from layerwise.encoder import (
    POOLINGS,
    Array,
    LayerEncoder,
    LayerReader,
    SentenceTokenizer,
    layer_reader,
    stream,
    window_rows,
    windows_of,
)
from layerwise.mixes import parse_mix
from layerwise.train.contrastive.terms import FrozenSettings

MAX_BYTES = 4 << 30  # of views held in memory


class Frozen(Protocol):
    """Returns a batch's frozen views: (b, layers, width)."""

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The views of a batch's rows."""


class FrozenViews:
    """Precomputed views, looked up by row number."""

    def __init__(self, views: Tensor, device: torch.device) -> None:
        self.views = views
        self.device = device

    @classmethod
    def of(
        cls, encoder: LayerEncoder, texts: Sequence[str], settings: FrozenSettings, *, max_length: int
    ) -> "FrozenViews":
        """Compute the views of all sentences, truncated to `max_length` tokens, with the encoder's current weights."""
        layers = list(parse_mix(settings.layers).resolve(encoder.depth).layers)
        parts = stream(
            windows_of(texts, window_rows(4 * len(layers) * encoder.width)),
            tokenizer=SentenceTokenizer(encoder.tokenizer, max_length=max_length),
            pad_id=int(encoder.tokenizer.pad_token_id or 0),
            forward=lambda tokens, mask: encoder.read(tokens, mask, layers, (settings.pooling,))[:, 0].float(),
            device=encoder.device,
            budget=encoder.budget,
        )
        return cls(_placed(torch.cat([torch.from_numpy(part) for part in parts]), encoder.device), encoder.device)

    @classmethod
    def of_vectors(cls, vectors: Array, device: torch.device) -> "FrozenViews":
        """Wrap embeddings of other models, (texts, width), as one layer."""
        return cls(_placed(torch.from_numpy(vectors)[:, None], device), device)

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the rows' views on the device."""
        rows = batch["rows"].to(self.views.device)
        return self.views[rows].to(self.device, non_blocking=True)


class FrozenCopy:
    """A copy of the model that encodes one column of the batch at every step."""

    def __init__(self, encoder: LayerEncoder, settings: FrozenSettings) -> None:
        self.model: nn.Module = deepcopy(encoder.model).requires_grad_(False)
        self.reader: LayerReader = layer_reader(self.model)
        self.layers = list(parse_mix(settings.layers).resolve(encoder.depth).layers)
        self.pool = POOLINGS[settings.pooling]
        self.column = settings.column
        self.model.train(settings.dropout)

    @torch.no_grad()
    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Encode the sentences of its column."""
        rows = len(batch["rows"])
        part = slice(self.column * rows, (self.column + 1) * rows)
        tokens, mask = batch["input_ids"][part], batch["attention_mask"][part]
        inputs = {"input_ids": tokens, "attention_mask": mask}
        pooled = self.reader.read(inputs, set(self.layers), lambda states: self.pool(states, mask))
        return torch.stack([pooled[layer] for layer in self.layers], dim=1)


def bytes_needed(encoder: LayerEncoder, sentences: int, settings: FrozenSettings) -> int:
    """Return the size of the views of this many sentences."""
    return sentences * len(parse_mix(settings.layers).resolve(encoder.depth).layers) * encoder.width * 4


def _placed(views: Tensor, device: torch.device) -> Tensor:
    """Move the views to the GPU if they use little of its memory, otherwise to pinned memory."""
    if device.type != "cuda":
        return views
    free, _ = torch.cuda.mem_get_info(device)
    return views.to(device) if views.nbytes < free // 4 else views.pin_memory()
