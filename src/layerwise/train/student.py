"""The student: encoder, pooler, head and loss terms as one module, one forward pass over all columns a step."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.mixes import LayerMix
from layerwise.mixes.base import Mix
from layerwise.objectives import gather_rows
from layerwise.train.learner import Learner
from layerwise.train.terms import OwnRows, Step, Term

Encoded = dict[str, Tensor]  # rows first in each, so that batches can be cut and joined


class Student(Learner):
    """What the trainer trains.

    Args:
        encoder: Its model is trained in place.
        pooler: The mix that makes embeddings, resolved; attention has its network.
        head: Behind the pooler, or identity.
        terms: The loss, by name.
        weights: Of the terms.
    """

    def __init__(
        self,
        encoder: LayerEncoder,
        pooler: LayerMix,
        head: nn.Module,
        terms: Mapping[str, Term],
        weights: Mapping[str, float],
    ) -> None:
        super().__init__(encoder, pooler, head)
        self.terms = nn.ModuleDict(terms)
        self.weights = dict(weights)
        asked = [view for term in terms.values() for view in term.views]
        self.layers = sorted({*pooler.layers, *(layer for _, layer in asked)})
        self.poolings = list(dict.fromkeys([*pooler.poolings, *(pooling for pooling, _ in asked)]))
        self._asked = asked
        self._picked = _Picked(pooler, self.layers, self.poolings)
        self.encoded_names = ("embeddings", "views") if asked else ("embeddings",)
        self.run: Callable[[Tensor, Tensor], Encoded] = self.encode  # or a faster way to the same
        self.eval()  # a fresh module calls itself training, whatever mode its encoder is in

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, rows: Tensor, frozen: Tensor | None = None
    ) -> dict[str, Any]:
        """The loss and its parts: tokens (columns · b, t) with column 0's rows first, `rows` (b,)."""
        encoded = self.run(input_ids, attention_mask)
        return self.loss(encoded, input_ids, attention_mask, len(rows), frozen)

    def encode(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """One pass: embeddings behind the head, and the views that terms asked for, (rows, poolings, layers, width)."""
        views = self.encoder.read(tokens, mask, self.layers, self.poolings)
        with torch.autocast(views.device.type, enabled=False):
            embeddings = self.head(self.pooler.combine_poolings(self._picked(views)))
        found = {"embeddings": embeddings, "views": views}
        return {name: found[name] for name in self.encoded_names}

    def loss(self, encoded: Encoded, tokens: Tensor, mask: Tensor, rows: int, frozen: Tensor | None) -> dict[str, Any]:
        """The weighted sum of the terms on the joint batch of all processes."""
        step = self._step(encoded, tokens, mask, rows, frozen)
        parts = {name: term(step) for name, term in self.terms.items()}
        total = torch.stack([self.weights[name] * value.float() for name, value in parts.items()]).sum()
        return {"loss": total, "parts": {name: value.detach() for name, value in parts.items()}}

    def _step(self, encoded: Encoded, tokens: Tensor, mask: Tensor, rows: int, frozen: Tensor | None) -> Step:
        columns = len(tokens) // rows
        own = _by_column(encoded["embeddings"], columns)
        views = {}
        if self._asked:
            joint = _gathered(_by_column(encoded["views"], columns))
            views = {
                (pooling, layer): joint[:, :, self.poolings.index(pooling), self.layers.index(layer)]
                for pooling, layer in self._asked
            }
        return Step(
            embeddings=_gathered(own),
            views=views,
            own=OwnRows(own, _by_column(tokens, columns), _by_column(mask, columns)),
            head=self.head,
            frozen=None if frozen is None else gather_rows(frozen),
        )


class _Picked:
    """The pooler's own views of all that were read: (rows, poolings, layers, width) -> the same, fewer."""

    def __init__(self, pooler: Mix, layers: list[int], poolings: list[str]) -> None:
        self.poolings = [poolings.index(name) for name in pooler.poolings]
        self.layers = [layers.index(layer) for layer in pooler.layers]
        self.whole = (len(self.poolings), len(self.layers)) == (len(poolings), len(layers))

    def __call__(self, views: Tensor) -> Tensor:
        if self.whole:
            return views
        # Not by lists of numbers: these would be copied to the GPU at every step, which no CUDA graph allows.
        by_pooling = (torch.stack([views[:, pooling, layer] for layer in self.layers], 1) for pooling in self.poolings)
        return torch.stack(list(by_pooling), dim=1)


def _by_column(rows: Tensor, columns: int) -> Tensor:
    """(columns · b, …) -> (columns, b, …)"""
    return rows.reshape(columns, len(rows) // columns, *rows.shape[1:])


def _gathered(columns: Tensor) -> Tensor:
    """(columns, b, …) of this process -> (columns, n, …) of all."""
    return gather_rows(columns.transpose(0, 1).contiguous()).transpose(0, 1)
