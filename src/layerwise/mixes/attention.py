"""Attention over all layers as a mix: LayerAttPooler's pooler, whose weights come from training."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder.pooling import POOLINGS
from layerwise.errors import MixError
from layerwise.mixes.attention_network import SCORES, AttentionNetwork
from layerwise.mixes.base import Mix, Views, several_poolings_needed


@dataclass(frozen=True, repr=False)
class LayerAttention(Mix):
    """All layers, weighted by a trained network's attention over them.

    Table 2 of the paper: CLS_all is `attention(cls, cls)`, AVG_all `attention(mean, mean)`, both together
    `attention(cls, mean)`, and with the last [CLS] before it `attention(cls, mean, last=cls)`.

    Args:
        queries: The token pooling of the layers that ask.
        values: The token pooling of the layers that are weighed: keys and values.
        last: Put the last layer's vector of this token pooling before the attended one; "" for none.
        scores: "softmax", the authors' code, or "ratio", equation 1 as printed; see `attention_network`.
        depth: The encoder's last layer, which `resolve` fills in.
        network: The weights. Two attentions are equal by what they say, whatever their weights.

    >>> LayerAttention("cls", "mean", last="cls")
    LayerAttention('attention(cls, mean, last=cls)')
    """

    queries: str = "cls"
    values: str = "mean"
    last: str = ""
    scores: str = "softmax"
    depth: int | None = None
    network: AttentionNetwork | None = field(default=None, compare=False)
    pooling: str = field(init=False, default="mean", compare=False)  # the first of `poolings`

    def __post_init__(self) -> None:
        for name in self.poolings:
            POOLINGS[name]  # an unknown pooling is refused, with the known ones
        object.__setattr__(self, "pooling", self.queries)
        if self.scores not in SCORES:
            raise MixError(f"Unknown scores {self.scores!r} of an attention. Known: {', '.join(SCORES)}")
        if self.network is not None and self.network.scores != self.scores:
            raise MixError(f"{self} scores by {self.scores}, but its network by {self.network.scores}")

    def with_network(self, network: AttentionNetwork) -> Self:
        """The same attention with these weights; they are not copied."""
        return replace(self, network=network)

    def fresh(self, width: int, *, seed: int) -> Self:
        """The same attention with untrained weights, for layers of this width."""
        generator = torch.Generator().manual_seed(seed)
        return self.with_network(AttentionNetwork(width, scores=self.scores, generator=generator))

    @property
    def trained(self) -> AttentionNetwork:
        """The weights; refused where there are none."""
        if self.network is None:
            raise MixError(f"{self} has no weights: they come from training; see `layerwise train`")
        return self.network

    @property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, queries first."""
        return tuple(dict.fromkeys([self.queries, self.values] + [self.last] * bool(self.last)))

    @property
    def layers(self) -> tuple[int, ...]:
        """All layers."""
        if self.depth is None:
            raise MixError(f"{self} does not know the last layer yet: call resolve(depth) first")
        return tuple(range(self.depth + 1))

    def resolve(self, depth: int) -> Self:
        """The same over the layers 0 to `depth`; one that was made for another encoder's is refused."""
        if self.depth not in (None, depth):
            raise MixError(f"{self} is over the layers 0 to {self.depth}, but this encoder has 0 to {depth}")
        return replace(self, depth=depth)

    def combine(self, picked: Views) -> Views:
        """Where one token pooling is all that it needs: (..., layers, width) -> (..., width)."""
        if len(self.poolings) > 1:
            raise several_poolings_needed(self, picked.shape)
        flat = self.combine_poolings(picked.reshape(-1, 1, *picked.shape[-2:]))
        return flat.reshape(*picked.shape[:-2], -1)

    def combine_poolings(self, views: Views) -> Views:
        """(batch, poolings, layers, width) -> (batch, width), or twice as wide with `last`."""
        if isinstance(views, Tensor):
            return self._attended(views)
        with torch.no_grad():
            tensor = torch.from_numpy(np.ascontiguousarray(views)).to(next(self.trained.parameters()).device)
            attended: np.ndarray[Any, Any] = self._attended(tensor).cpu().numpy()
        return attended

    def width(self, width: int) -> int:
        """A layer's width, or twice that with `last`."""
        return 2 * width if self.last else width

    @property
    def expression(self) -> str:
        """Such as `attention(cls, mean, last=cls)`."""
        options = [f"last={self.last}"] * bool(self.last) + [f"scores={self.scores}"] * (self.scores != "softmax")
        return f"attention({', '.join([self.queries, self.values, *options])})"

    def __str__(self) -> str:
        return self.expression

    def _attended(self, views: Tensor) -> Tensor:
        queries, values = (views[:, self.poolings.index(name)] for name in (self.queries, self.values))
        attended: Tensor = self.trained(queries, values)
        if not self.last:
            return attended
        return torch.cat([views[:, self.poolings.index(self.last), -1].to(attended.dtype), attended], dim=-1)
