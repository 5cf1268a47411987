"""SBERT-WK (Wang & Kuo 2020): weights each token's layers by alignment and novelty, then the tokens by variance.

For a token, layer k is compared with its neighbours, at most `window` on each side. With the QR decomposition of
[neighbours, layer k], whose last column of R is r:

    alignment  1 / (2 m cos), cos = the mean cosine of the neighbours with layer k's part in their span, m = columns
    novelty    |r's last| / |r|, the share of layer k that no neighbour has

The layer weights are the sum of both, each normalised over the layers. The weight of a token is the variance of the
cosines of consecutive layers. R depends on inner products only: it is the Cholesky factor of their small matrix, so
that all tokens of a batch are computed at once. As in the authors' code, an incomplete left window is empty, and the
last token ([SEP]) is left out.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from layerwise.encoder import resolve_layer
from layerwise.errors import MixError
from layerwise.mixes.mix import Array, Mix, View

_JITTER = 1e-12  # added to squared lengths of 1; without it, equal layers have no Cholesky factor


@dataclass(frozen=True, repr=False)
class SbertWk(Mix):
    """SBERT-WK over the layers `start` to `last`. It needs token states, not pooled views.

    Args:
        start: The first layer, 4 in the paper. There must be at least max(3, window + 1) layers from it on.
        window: The number of neighbours on each side.
        last: The last layer.

    >>> SbertWk().resolve(12)
    SbertWk('wk(start=4,window=2,last=12)')
    """

    reads_tokens = True
    nonlinear = "SBERT-WK computes the weights of layers and tokens from the states themselves"
    poolings = ("mean",)  # a token is as wide as a mean of tokens
    start: int = 4
    window: int = 2
    last: int = -1

    def __post_init__(self) -> None:
        if self.window < 1:
            raise MixError(f"{self}: the window must be 1 or more")

    @property
    def views(self) -> tuple[View, ...]:
        """The layers from `start` to `last`, whose tokens it reads."""
        if self.start < 0 or self.last < 0:
            raise MixError(f"{self} counts from the last layer: call resolve(depth) first")
        return tuple(map(View, range(self.start, self.last + 1)))

    def resolve(self, depth: int) -> Self:
        """The same in layer numbers from 0; raises `MixError` if there are too few layers."""
        last, needed = resolve_layer(self.last, depth), max(3, self.window + 1)
        start = self.start + depth + 1 if self.start < 0 else self.start
        if start < 0 or last - start + 1 < needed:
            max_start = last - needed + 1
            advice = f"write wk(start={max_start})" if max_start >= 0 else "it cannot be used here"
            raise MixError(f"{self} needs {needed} layers from {start} on, but the last is {last}; {advice}")
        return type(self)(start, self.window, last)

    def combine(self, views: Array) -> Array:
        """Raise `MixError`, as pooled views have no tokens."""
        raise MixError(
            f"{self} reads token states, but these are pooled views {tuple(views.shape)}; use LayerModel(…, 'wk')"
        )

    def _combine(self, views: Tensor) -> Tensor:
        return self.combine(views)

    def combine_tokens(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (tokens, layers, width) of the tokens in `mask` (batch, max length) -> (batch, width)."""
        return wk(states, mask, window=self.window)

    def __str__(self) -> str:
        last = "" if self.last == -1 else f",last={self.last}"
        return f"wk(start={self.start},window={self.window}{last})"


def without_last_token(mask: Tensor) -> Tensor:
    """The mask without each sentence's last token, unless it is the only one: (batch, tokens) -> same shape, bool."""
    places = torch.arange(mask.shape[1], device=mask.device)
    last = (mask * (places + 1)).argmax(dim=1, keepdim=True)
    return mask.bool() & ((places != last) | (mask.sum(dim=1, keepdim=True) == 1))


def wk(states: Tensor, mask: Tensor, *, window: int = 2) -> Tensor:
    """SBERT-WK's sentence vectors.

    Args:
        states: The concatenated tokens of all sentences: (tokens, layers, width)
        mask: True for these tokens, at least one per sentence: (batch, max length)
        window: The number of neighbours on each side.

    Returns:
        (batch, width) in float32, or float64 for float64 states.
    """
    exact = states.float() if states.device.type == "mps" else states.double()  # MPS has no float64
    cosines = _cosines(exact)
    weights = layer_weights(cosines, window=window).unsqueeze(1)
    tokens = (weights @ exact).squeeze(1)
    sentence = mask.nonzero()[:, 0]
    shares = _shares(token_weights(cosines), sentence, len(mask)).unsqueeze(1)
    pooled = tokens.new_zeros(len(mask), tokens.shape[1]).index_add_(0, sentence, shares * tokens)
    return pooled if states.dtype == torch.float64 else pooled.float()


def layer_weights(cosines: Tensor, *, window: int) -> Tensor:
    """The weights of layers from the cosines of each token's layers: (tokens, layers, layers) -> (tokens, layers)."""
    alignment, novelty = [], []
    for layer in range(cosines.shape[-1]):
        order = [*_neighbours(layer, cosines.shape[-1], window), layer]
        picked = cosines[:, order][:, :, order] + _JITTER * torch.eye(len(order)).to(cosines)
        r = torch.linalg.cholesky_ex(picked)[0][:, -1]  # the last column of R
        mean_cosine = picked[:, -1, :-1].mean(dim=1) / r[:, :-1].norm(dim=1)
        alignment.append(1 / (mean_cosine * len(order) * 2))
        novelty.append(r[:, -1].abs() / r.norm(dim=1))
    return _normalize_sum(_normalize_sum(torch.stack(alignment, dim=1)) + _normalize_sum(torch.stack(novelty, dim=1)))


def token_weights(cosines: Tensor) -> Tensor:
    """The variance of the cosines of each layer with the next: (tokens, layers, layers) -> (tokens,)."""
    return cosines.diagonal(offset=-1, dim1=1, dim2=2).var(dim=1)


def _normalize_sum(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=1, keepdim=True)


def _neighbours(layer: int, layers: int, window: int) -> list[int]:
    left = range(layer - window, layer) if layer >= window else ()  # incomplete is empty, as in the authors' slices
    return [*left, *range(layer + 1, min(layers, layer + window + 1))]


def _cosines(states: Tensor) -> Tensor:
    """(tokens, layers, width) -> the layers' cosines (tokens, layers, layers)."""
    unit = torch.nn.functional.normalize(states, dim=-1)
    return unit @ unit.transpose(1, 2)


def _shares(weights: Tensor, sentence: Tensor, sentences: int) -> Tensor:
    """Normalise token weights per sentence; equal weights if their sum is 0."""
    sums = weights.new_zeros(sentences).index_add_(0, sentence, weights)[sentence]
    counts = weights.new_zeros(sentences).index_add_(0, sentence, torch.ones_like(weights))[sentence]
    return torch.where(sums > 0, weights / sums.clamp_min(torch.finfo(weights.dtype).tiny), 1 / counts)
