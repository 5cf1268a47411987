"""Attention over all layers as a mix (LayerAttPooler, Oh et al. 2022), with trained weights.

Each layer gives a query by one token pooling, and a key and a value by another. The authors' code and the paper's
equations differ; both are implemented:

    softmax  K, Q, V = RReLU(W x). Query i scores layer j by K_j·Q_i / layers; a softmax over j; the mean over i.
    ratio    K, Q, V = W x. alpha_j = Q_j·K_j / sum over all layers (eq. 1), with the values summed by it (eq. 2).
             Their h_i does not depend on i, so that its mean over the layers (eq. 3) is h_i itself. The ratio is
             unbounded for sums near 0, and may be negative.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from layerwise.encoder import parse_pooling
from layerwise.errors import MixError
from layerwise.mixes.mix import Fitted, Mix, View
from layerwise.registry import check_known

SCORES = ("softmax", "ratio")
_INIT_STD = 0.02  # as in BERT


class AttentionNetwork(Fitted):
    """Key, query and value projections of layer views, and the attention over them.

    It computes in the dtype of its weights, float32 by default, also under autocast.

    Args:
        width: The length of a layer's vectors.
        scores: "softmax", the authors' code; "ratio", the paper's equations.
        generator: Draws the initial weights from a normal distribution (std 0.02); by default with seed 0.

    >>> network = AttentionNetwork(8)
    >>> network(torch.ones(2, 13, 8), torch.ones(2, 13, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, width: int, *, scores: str = "softmax", generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_known(scores, SCORES, "attention scores")
        self.width, self.scores, self.label = width, scores, f"{scores} {width}"
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        self.key, self.query, self.value = (_linear(width, generator) for _ in range(3))
        self.activation: nn.Module = nn.RReLU() if scores == "softmax" else nn.Identity()

    def forward(self, queries: Tensor, values: Tensor) -> Tensor:
        """The attended vector: two (batch, layers, width) -> (batch, width)"""
        with torch.autocast(values.device.type, enabled=False):
            weights = self._weights(queries, values)
            # averaging over the queries first needs one weighted sum per sentence, not one per layer
            shares = weights[:, :1] if self.scores == "ratio" else weights.mean(dim=1, keepdim=True)
            return torch.bmm(shares, self._project(self.value, values)).squeeze(1)

    def weights(self, queries: Tensor, values: Tensor) -> Tensor:
        """The attention weights of each query, which sum to 1; with "ratio", they are equal for all queries.

        Two (batch, layers, width) -> (batch, queries, layers)
        """
        with torch.autocast(values.device.type, enabled=False):
            return self._weights(queries, values)

    def _weights(self, queries: Tensor, values: Tensor) -> Tensor:
        queries, keys = self._project(self.query, queries), self._project(self.key, values)
        if self.scores == "ratio":
            products = (queries * keys).sum(dim=-1)
            ratios = products / products.sum(dim=-1, keepdim=True)
            return ratios.unsqueeze(1).expand(-1, ratios.shape[1], -1)
        return torch.softmax(torch.bmm(queries, keys.transpose(1, 2)) / keys.shape[1], dim=-1)

    def _project(self, linear: nn.Linear, vectors: Tensor) -> Tensor:
        """Project all layers of all sentences in one matrix product: (batch, layers, width) -> same shape"""
        flat: Tensor = self.activation(linear(vectors.to(linear.weight.dtype).flatten(0, 1)))
        return flat.view(vectors.shape)


def _linear(width: int, generator: torch.Generator) -> nn.Linear:
    # created without weights, as nn.Linear would draw them from the global generator
    linear = nn.Linear(width, width, bias=False, device="meta").to_empty(device="cpu")
    nn.init.normal_(linear.weight, std=_INIT_STD, generator=generator)
    return linear


@dataclass(frozen=True, repr=False)
class Attention(Mix):
    """All layers, weighted by a trained attention network.

    Table 2 of the paper: CLS_all is `attention(cls, cls)`, AVG_all `attention(mean, mean)`, their combination
    `attention(cls, mean)`, and with the last [CLS] prepended `attention(cls, mean, last=cls)`.

    Args:
        queries: The token pooling of the queries, possibly in a prompt, such as "mask in means".
        values: The token pooling of the keys and values.
        last: The token pooling of the last layer's vector that is prepended to the output; "" for none.
        scores: "softmax", the authors' code, or "ratio", equation 1 as printed; see above.
        depth: The encoder's last layer, which `resolve` sets.
        network: The weights, which are ignored when mixes are compared.

    >>> Attention("cls", "mean", last="cls")
    Attention('attention(cls, mean, last=cls)')
    """

    is_learned = True
    nonlinear = "attention computes the weights of the layers from the layers themselves"
    queries: str = "cls"
    values: str = "mean"
    last: str = ""
    scores: str = "softmax"
    depth: int | None = None
    network: AttentionNetwork | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in self.poolings:
            parse_pooling(name)  # refuses an unknown pooling
        check_known(self.scores, SCORES, "attention scores")
        if self.network is not None and self.network.scores != self.scores:
            raise MixError(f"{self} scores by {self.scores}, but its network by {self.network.scores}")

    @property
    def fitted(self) -> AttentionNetwork:
        """The network with the weights; raises `MixError` without one."""
        if self.network is None:
            raise MixError(f"{self} has no weights: they come from training; see `layerwise train`")
        return self.network

    def with_fitted(self, fitted: Fitted) -> Self:
        """The same attention with this network, which is not copied."""
        if not isinstance(fitted, AttentionNetwork):
            raise MixError(f"{self} takes an AttentionNetwork, not {type(fitted).__name__}")
        return replace(self, network=fitted)

    def with_weights(self, weights: Mapping[str, Tensor]) -> Self:
        """The same attention with a network of these weights, which are copied."""
        if set(weights) != {f"{name}.weight" for name in ("key", "query", "value")}:
            raise MixError(f"{self} needs the weights of key, query and value, not {', '.join(weights) or 'nothing'}")
        shapes = {tensor.shape for tensor in weights.values()}
        width = len(next(iter(weights.values())))
        if shapes != {(width, width)}:
            raise MixError(f"{self} needs three square matrices of one size, not {sorted(map(tuple, shapes))}")
        network = AttentionNetwork(width, scores=self.scores)
        network.load_state_dict(dict(weights))
        return self.with_fitted(network)

    def fresh(self, width: int, *, seed: int) -> Self:
        """The same attention with untrained weights, for layers of this width."""
        generator = torch.Generator().manual_seed(seed)
        return self.with_fitted(AttentionNetwork(width, scores=self.scores, generator=generator))

    @cached_property
    def poolings(self) -> tuple[str, ...]:
        """The different token poolings, queries first."""
        return tuple(dict.fromkeys([self.queries, self.values] + [self.last] * bool(self.last)))

    @property
    def views(self) -> tuple[View, ...]:
        """All layers by every token pooling."""
        if self.depth is None:
            raise MixError(f"{self} does not know the last layer yet: call resolve(depth) first")
        return tuple(View(layer, pooling) for pooling in self.poolings for layer in range(self.depth + 1))

    def resolve(self, depth: int) -> Self:
        """The same attention over the layers 0 to `depth`; refuses a different depth from before."""
        if self.depth not in (None, depth):
            raise MixError(f"{self} is over the layers 0 to {self.depth}, but this encoder has 0 to {depth}")
        return replace(self, depth=depth)

    def width(self, width: int) -> int:
        """A layer's width, or twice that with `last`."""
        return 2 * width if self.last else width

    def _combine(self, views: Tensor) -> Tensor:
        flat = views.to(next(self.fitted.parameters()).device).reshape(-1, *views.shape[-3:])
        queries, values = (flat[:, self.poolings.index(name)] for name in (self.queries, self.values))
        attended: Tensor = self.fitted(queries, values)
        if self.last:
            last = flat[:, self.poolings.index(self.last), -1].to(attended.dtype)
            attended = torch.cat([last, attended], dim=-1)
        return attended.reshape(*views.shape[:-3], -1)

    def __str__(self) -> str:
        options = [f"last={self.last}"] * bool(self.last) + [f"scores={self.scores}"] * (self.scores != "softmax")
        return f"attention({', '.join([self.queries, self.values, *options])})"
