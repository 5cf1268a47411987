"""Over-smoothing (SSCL, section 2.1, figures 1 and 4): how alike neighbouring layers are, and a sentence's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.analysis.smoothing import layer_similarity, token_similarity
from layerwise.digests import text_digest
from layerwise.encoder import Array, windows_of
from layerwise.encoder.cache import ViewCache, ViewKey
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure

_POOLINGS = ("cls", "mean")
_ROWS = 2048  # sentences at once


@dataclass(frozen=True, eq=False)
class SetSim(Measured):
    """The mean cosine of layers i and i + 1 over sentences, by token pooling: (poolings, layers - 1)"""

    poolings: tuple[str, ...]
    means: NDArray[np.float64]
    sentences: int

    def of(self, pooling: str) -> NDArray[np.float64]:
        """One pooling's values: (layers - 1,)"""
        own: NDArray[np.float64] = self.means[self.poolings.index(pooling)]
        return own

    def rows(self) -> list[Row]:
        """A row for each two neighbours."""
        return [
            {"layers": f"{lower}-{lower + 1}"} | dict(zip(self.poolings, column, strict=True))
            for lower, column in enumerate(self.means.T.tolist())
        ]


@dataclass(frozen=True, eq=False)
class TokSim(Measured):
    """The mean cosine of different tokens of a sentence, by layer: (layers,); of `sentences` with two or more."""

    means: NDArray[np.float64]
    sentences: int

    def rows(self) -> list[Row]:
        """A row for each layer."""
        return [{"layer": layer, "toksim": value} for layer, value in enumerate(self.means.tolist())]


@dataclass(frozen=True, eq=False)
class Smoothing(Measured):
    """Both measures of over-smoothing."""

    setsim: SetSim
    toksim: TokSim

    def rows(self) -> list[Row]:
        """A row for each layer: its tokens' similarity, and its own with the layer below."""
        below = [[None] * len(self.setsim.poolings), *self.setsim.means.T.tolist()]
        names = [f"setsim {pooling}" for pooling in self.setsim.poolings]
        tokens = self.toksim.rows()
        return [row | dict(zip(names, column, strict=True)) for row, column in zip(tokens, below, strict=True)]


def setsim(material: Material) -> SetSim:
    """SetSim (SSCL eq. 2) of neighbouring layers, by the first token and by the mean, over all different texts."""
    means = [_mean_neighbours(material.pooled(pooling)) for pooling in _POOLINGS]
    return SetSim(_POOLINGS, np.stack(means), len(material.texts))


def toksim(material: Material) -> TokSim:
    """TokSim (SSCL eq. 1) of every layer, over all different texts of two tokens or more.

    It takes a forward pass of its own, for views hold no tokens; the result is kept beside the views.
    """
    found = _kept_similarities(material).double()
    kept = ~found[:, -1].isnan()
    return TokSim(found.nanmean(dim=0).numpy(), int(kept.sum()))


def smoothing(material: Material) -> Smoothing:
    """Both."""
    return Smoothing(setsim(material), toksim(material))


def token_similarities(encoder: LayerEncoder, texts: Sequence[str]) -> Tensor:
    """TokSim of every sentence and layer: (texts, layers + 1); NaN for one token.

    Taken inside the forward pass, so that no layer's tokens are kept.
    """
    layers = range(encoder.depth + 1)

    def forward(tokens: Tensor, mask: Tensor) -> Tensor:
        inputs = {"input_ids": tokens, "attention_mask": mask}
        found = encoder.reader.read(inputs, set(layers), lambda states: token_similarity(states, mask))
        return torch.stack([found[layer] for layer in layers], dim=1).float()

    return torch.cat([torch.from_numpy(part) for part in encoder.stream(windows_of(texts, 4096), forward)])


def _kept_similarities(material: Material) -> Tensor:
    """`token_similarities` from the cache if they are there, as views one number wide: (texts, layers)"""
    encoder, texts = material.model.encoder, material.texts
    if not material.cache:
        return token_similarities(encoder, texts)
    model, tokenizer = encoder.fingerprint()
    key = ViewKey(
        model=model,
        tokenizer=tokenizer,
        texts=text_digest(texts),
        pooling="toksim",
        max_length=encoder.max_length,
        dtype=encoder.dtype,
        backend="torch",  # whatever the encoder's: tokens are read by torch
        shape=(len(texts), encoder.depth + 1, 1),
    )

    def fill(arrays: Sequence[Array]) -> None:
        arrays[0][:, :, 0] = token_similarities(encoder, texts).numpy()

    store = ViewCache()
    found = store.get(key)
    if found is None:
        (found,) = store.put_all([key], fill, label=encoder.name)
    return torch.tensor(found[:, :, 0])


def _mean_neighbours(views: Array) -> NDArray[np.float64]:
    """(texts, layers, width) -> (layers - 1,), some texts at a time, for views may lie on disk"""
    total = np.zeros(views.shape[1] - 1)
    for start in range(0, len(views), _ROWS):
        part = torch.tensor(views[start : start + _ROWS])
        total += layer_similarity(part).double().sum(dim=0).numpy()
    return total / len(views)


add_measure(
    Measure(
        "setsim",
        "SetSim: likeness of neighbouring layers",
        "Cosine of a sentence's embedding in one layer and the next: near 1 the layer adds nothing, and the encoder is "
        "over-smoothed.",
        setsim,
    )
)
add_measure(
    Measure(
        "toksim",
        "TokSim: likeness of a sentence's tokens",
        "Mean cosine of different tokens of a sentence: near 1 all tokens have become the same, and the encoder is "
        "over-smoothed.",
        toksim,
    )
)
