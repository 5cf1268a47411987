"""Decompose a model into a linear map of its token states, if it is linear.

The embedding is a sum over views (layer, token pooling): `share` times the view's vector, at dimension `start`. A view
is a weighted sum of the layer's token states. The normalisation of a view is a scalar factor of the sentence, and means
are subtracted from every token, because the weights of the tokens sum to 1. Linear heads follow.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import MASK, parse_pooling
from layerwise.errors import InputError, MixError, ModelError
from layerwise.mixes import (
    LayerAttention,
    LayerConcat,
    LayerJoin,
    LayerMix,
    LayerSet,
    LayerViews,
    LayerWeights,
    LayerWk,
)
from layerwise.model import Head, LayerModel

Exact = NDArray[np.float64]
LINEAR_POOLINGS = ("mean", "cls", "last", "weighted-mean", "mean-but-first", MASK)


@dataclass(frozen=True)
class Place:
    """A view's term in the embedding: `share` times its vector, from dimension `start` on."""

    pooling: str
    layer: int
    share: float
    start: int


def check_linear(model: LayerModel) -> None:
    """Refuse a model whose cosine is not a sum over tokens and layers, with the reason."""
    for pooling in model.mix.poolings:
        if parse_pooling(pooling).pooling not in LINEAR_POOLINGS:
            raise MixError(
                f"{model.mix} cannot be explained exactly: {pooling} takes each dimension from another token, which is "
                f"no weighted sum of tokens; use one of {', '.join(LINEAR_POOLINGS)}"
            )
    places_of(model.mix, model.encoder.width)
    for head in model.heads:
        if not isinstance(head, Head) or head.activation != "identity":
            raise ModelError(
                f"The model cannot be explained exactly: its head ({head.activation}) is not linear; name a mix of "
                f"layers to explain the model without its heads"
            )
    if model.encoder.backend != "torch":
        raise InputError("Explanations read token states, which ONNX graphs don't give; use the torch backend")


def places_of(mix: LayerMix, width: int, start: int = 0) -> list[Place]:
    """The terms of the views of a resolved mix, for layers of this width; refuses a mix that is not linear."""
    if isinstance(mix, LayerSet):
        return [Place(mix.pooling, layer, 1 / len(mix.layers), start) for layer in mix.layers]
    if isinstance(mix, LayerWeights):
        return [Place(mix.pooling, layer, weight, start) for layer, weight in mix.weights]
    if isinstance(mix, LayerConcat):
        return [Place(mix.pooling, layer, 1.0, start + number * width) for number, layer in enumerate(mix.layers)]
    if isinstance(mix, LayerJoin):
        places = []
        for part in mix.parts:
            places += places_of(part, width, start)
            start += part.width(width)
        return places
    if isinstance(mix, LayerViews):
        views = [(part.pooling, layer) for part in mix.parts for layer in part.layers]
        return [Place(*view, share, start) for view, share in zip(views, mix.shares, strict=True)]
    raise MixError(f"{mix} cannot be explained exactly: {_reason(mix)}; name a set of layers, such as 'last' or '1,6'")


def _reason(mix: LayerMix) -> str:
    if isinstance(mix, LayerAttention):
        return "attention computes the weights of the layers from the layers themselves"
    if isinstance(mix, LayerWk):
        return "SBERT-WK computes the weights of layers and tokens from the states themselves"
    return "it is no weighted sum of layers"


def apply_heads(model: LayerModel, vectors: Exact) -> tuple[Exact, Exact]:
    """Apply linear heads and truncation without biases: (..., mix width) -> (..., width)

    The second value is the contribution of the biases to an embedding: (width,)
    """
    bias = np.zeros(vectors.shape[-1])
    for head in model.heads:
        if not isinstance(head, Head):
            raise ModelError(f"{type(head).__name__} is not linear")
        weight = head.linear.weight.detach().cpu().double().numpy()
        vectors, bias = vectors @ weight.T, weight @ bias
        if head.linear.bias is not None:
            bias = bias + head.linear.bias.detach().cpu().double().numpy()
    return vectors[..., : model.truncate_dim], bias[: model.truncate_dim]
