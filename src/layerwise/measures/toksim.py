"""TokSim (SSCL, equation 1, figure 4): how similar the tokens of a sentence are, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise import plots
from layerwise.data import TaskRows
from layerwise.digests import text_digest
from layerwise.encoder import Array, LayerEncoder, ViewCache, ViewKey, windows_of
from layerwise.errors import InputError
from layerwise.measures.measure import SAMPLE, Figure, LayerColumn, Measure, MeasureValue, Row, Values
from layerwise.measures.model_on_pairs import ModelOnPairs, memoized
from layerwise.measures.vectors import as_float
from layerwise.model import LayerModel


def token_similarity(states: Tensor, mask: Tensor) -> Tensor:
    """TokSim (SSCL eq. 1): the mean cosine of different tokens. (b, t, d), (b, t) -> (b,); NaN for less than two

    The cosines of all pairs, each token with itself included, add up to the squared length of the sum of the tokens'
    unit vectors, so no (b, t, t) tensor is made. In float32 at least; the cosines of a zero vector are 0.
    """
    if states.ndim != 3 or mask.shape != states.shape[:2]:
        raise InputError(
            f"The shapes are states {tuple(states.shape)} and mask {tuple(mask.shape)}; expected (sentences, tokens, "
            "width) and (sentences, tokens)"
        )
    states, mask = as_float(states), mask.bool()
    norms = torch.linalg.vector_norm(states, dim=-1)
    nonzero = mask & (norms > 0)
    weights = nonzero / norms.masked_fill(norms == 0, 1)
    with torch.autocast(states.device.type, enabled=False):
        sums = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
    pairs = sums.square().sum(dim=-1) - nonzero.sum(dim=1)
    tokens = mask.sum(dim=1)
    return torch.where(tokens > 1, pairs / (tokens * (tokens - 1)), torch.nan)


def token_similarities(encoder: LayerEncoder, texts: Sequence[str]) -> Tensor:
    """TokSim of every sentence and layer: (texts, layers + 1); NaN for a single token.

    Computed inside the forward pass, so that no layer's tokens are stored.
    """
    layers = range(encoder.depth + 1)

    def forward(tokens: Tensor, mask: Tensor) -> Tensor:
        inputs = {"input_ids": tokens, "attention_mask": mask}
        by_layer = encoder.reader.read(inputs, set(layers), lambda states: token_similarity(states, mask))
        return torch.stack([by_layer[layer] for layer in layers], dim=1).float()

    return torch.cat([torch.from_numpy(part) for part in encoder.stream(windows_of(texts, 4096), forward)])


@dataclass(frozen=True, eq=False)
class TokSim(MeasureValue):
    """The mean cosine of different tokens of a sentence by layer, (layers,), over `sentences` of two tokens or more."""

    means: NDArray[np.float64]
    sentences: int

    def rows(self) -> list[Row]:
        """Return a row per layer."""
        return [{"layer": layer, "toksim": value} for layer, value in enumerate(self.means.tolist())]

    def layer_columns(self) -> tuple[LayerColumn, ...]:
        """The mean of each layer."""
        return (LayerColumn("TokSim", self.means, help="Mean cosine of a sentence's tokens."),)


@memoized
def measure_toksim(subject: ModelOnPairs) -> TokSim:
    """TokSim of every layer, over all different texts of two tokens or more.

    It needs a forward pass, for views hold no tokens; the result is cached beside the views.
    """
    similarities = _cached_similarities(subject).double()
    measured = ~similarities[:, -1].isnan()
    return TokSim(similarities.nanmean(dim=0).numpy(), int(measured.sum()))


def _cached_similarities(subject: ModelOnPairs) -> Tensor:
    """`token_similarities`, cached as views of width 1: (texts, layers)"""
    encoder, texts = subject.model.encoder, subject.texts
    if not subject.cache:
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
    views = store.get(key)
    if views is None:
        (views,) = store.put_all([key], fill, label=encoder.name)
    return torch.tensor(views[:, :, 0])


def _last_token_similarity(model: LayerModel, pairs: TaskRows) -> float:
    """TokSim of the last layer."""
    return float(token_similarities(model.encoder, pairs.texts[:SAMPLE])[:, -1].nanmean())


def _plot(values: Values[TokSim], theme: "plots.Theme") -> "plots.Drawing":
    curves = {name: value.means for name, value in values.items()}
    return plots.layer_curves(scores=curves, measure="cosine of tokens", theme=theme)


MEASURE = Measure(
    "toksim",
    "TokSim: likeness of a sentence's tokens",
    "Mean cosine of different tokens of a sentence: near 1 all tokens have become the same, and the encoder is "
    "over-smoothed.",
    measure_toksim,
    default=True,
    figures=(Figure(_plot),),
    scalars={"token-similarity": _last_token_similarity},
)
