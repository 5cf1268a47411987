"""The frozen copy's views: the encoder as it was before training, whose layers are positives.

They never change, so they are computed once for each sentence, before training, in large sorted batches, and looked
up at every step. Where this is not possible (dropout on in the copy, a streamed corpus, more than memory allows), a
copy of the model runs at every step.
"""

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from layerwise.digests import text_digest
from layerwise.encoder import (
    POOLINGS,
    Array,
    LayerEncoder,
    LayerReader,
    SentenceTokenizer,
    ViewCache,
    ViewKey,
    layer_reader,
    stream,
    tokenizer_fingerprint,
    window_rows,
    windows_of,
)
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.train.contrastive.terms import FrozenSettings

log = logging.getLogger(__name__)
MAX_BYTES = 4 << 30  # of views held in memory


class Frozen(Protocol):
    """Returns a batch's frozen views: (b, layers, width)."""

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The views of a batch's rows."""


class FrozenViews:
    """Views computed beforehand, looked up by the rows' numbers."""

    def __init__(self, views: Tensor, device: torch.device) -> None:
        self.views = views
        self.device = device

    @classmethod
    def of(
        cls, encoder: LayerEncoder, texts: Sequence[str], settings: FrozenSettings, *, max_length: int
    ) -> "FrozenViews":
        """Of all sentences, truncated to `max_length` tokens, by the encoder as it is now."""
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
    def of_teachers(
        cls, teachers: Sequence[LayerModel], weights: Sequence[float], texts: Sequence[str], device: torch.device
    ) -> "FrozenViews":
        """The embeddings of other models, see `teachers_vectors`, as one layer."""
        return cls(_placed(torch.from_numpy(teachers_vectors(teachers, weights, texts))[:, None], device), device)

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The rows' views, on the device."""
        rows = batch["rows"].to(self.views.device)
        return self.views[rows].to(self.device, non_blocking=True)


class FrozenCopy:
    """A copy of the model that runs at every step, for one column of the batch."""

    def __init__(self, encoder: LayerEncoder, settings: FrozenSettings) -> None:
        self.model: nn.Module = deepcopy(encoder.model).requires_grad_(False)
        self.reader: LayerReader = layer_reader(self.model)
        self.layers = list(parse_mix(settings.layers).resolve(encoder.depth).layers)
        self.pool = POOLINGS[settings.pooling]
        self.column = settings.column
        self.model.train(settings.dropout)

    @torch.no_grad()
    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """One pass over the sentences of its column."""
        rows = len(batch["rows"])
        part = slice(self.column * rows, (self.column + 1) * rows)
        tokens, mask = batch["input_ids"][part], batch["attention_mask"][part]
        inputs = {"input_ids": tokens, "attention_mask": mask}
        pooled = self.reader.read(inputs, set(self.layers), lambda states: self.pool(states, mask))
        return torch.stack([pooled[layer] for layer in self.layers], dim=1)


def teachers_vectors(teachers: Sequence[LayerModel], weights: Sequence[float], texts: Sequence[str]) -> Array:
    """The teachers' embeddings side by side, of length 1: (texts, sum of widths)

    Each is of length √weight, and the weights' sum is 1: a cosine is the weighted mean of the teachers' cosines.
    """
    vectors = [
        np.float32(weight**0.5) * _unit_vectors(teacher, texts)
        for teacher, weight in zip(teachers, weights, strict=True)
    ]
    return np.concatenate(vectors, axis=1)


def _unit_vectors(teacher: LayerModel, texts: Sequence[str]) -> Array:
    """A teacher's embeddings of length 1, (texts, width), cached as one layer for other seeds and trainings."""
    encoder, store = teacher.encoder, ViewCache()
    key = ViewKey(
        model=teacher.digest(),
        tokenizer=tokenizer_fingerprint(teacher.tokenizer),
        texts=text_digest(texts),
        pooling=f"{teacher.mix}, embeddings of length 1",
        max_length=encoder.max_length,
        dtype=encoder.dtype,
        backend=encoder.arithmetic,
        shape=(len(texts), 1, teacher.width),
    )
    vectors = store.get(key)
    if vectors is None:
        log.info("the teacher %s encodes %d sentences; they are cached", encoder.name, len(texts))

        def fill(arrays: Sequence[Array]) -> None:
            arrays[0][:, 0] = teacher.encode(list(texts), normalize_embeddings=True)

        (vectors,) = store.put_all([key], fill, label=encoder.name)
    return np.asarray(vectors[:, 0])


def bytes_needed(encoder: LayerEncoder, sentences: int, settings: FrozenSettings) -> int:
    """The size of the views of so many sentences."""
    return sentences * len(parse_mix(settings.layers).resolve(encoder.depth).layers) * encoder.width * 4


def _placed(views: Tensor, device: torch.device) -> Tensor:
    """On the GPU where they take little of it, else in this machine's memory."""
    if device.type != "cuda":
        return views
    free, _ = torch.cuda.mem_get_info(device)
    return views.to(device) if views.nbytes < free // 4 else views.pin_memory()
