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
from layerwise.mixes import Mix
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


def places_of(mix: Mix, width: int) -> list[Place]:
    """The terms of the views of a resolved mix, for layers of this width; refuses a mix that is not linear."""
    if mix.terms is None:
        raise MixError(
            f"{mix} cannot be explained exactly: {mix.nonlinear}; name a set of layers, such as 'last' or '1,6'"
        )
    return [Place(view.pooling, view.layer, share, number * width) for view, share, number in mix.terms]


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
